// What the bind latch promises: what a weft's BIND named is there until the weft's next instruction issues, whatever
// others issue, and then never again. `c` is any context.
module bind_latch_proof #(
    parameter CONTEXTS = 8,
    parameter BITS = 11
) (
    input wire clk
);
    (* anyseq *) reg issue, is_bind;
    (* anyseq *) reg [$clog2(CONTEXTS)-1:0] context_number;
    (* anyseq *) reg [BITS-1:0] bind_bits;
    (* anyseq *) reg [CONTEXTS-1:0] drop;
    (* anyconst *) reg [$clog2(CONTEXTS)-1:0] c;
    wire [BITS-1:0] bound;
    wire [CONTEXTS*BITS-1:0] kept;
    reg reset = 1;
    always @(posedge clk)
        reset <= 0;

    bind_latch #(.CONTEXTS(CONTEXTS), .BITS(BITS)) latch (
        .clk(clk), .reset(reset), .issue(issue), .context_number(context_number), .is_bind(is_bind),
        .bind_bits(bind_bits), .drop(drop), .bound(bound), .kept(kept)
    );

    reg [BITS-1:0] mine = 0;
    always @(posedge clk)
        if (reset || drop[c])
            mine <= 0;
        else if (issue && context_number == c)
            mine <= is_bind ? bind_bits : 0;
    always @*
        if (!reset) begin
            assert (kept[BITS*c+:BITS] == mine);
            assert (context_number != c || bound == mine);
        end
endmodule
