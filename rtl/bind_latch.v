// Bind latch of a subpartition: what DEPBAR.BIND names waits with its weft until the weft's next instruction issues,
// however long that takes. The bits are those of the instruction, 102:92: consume A-D, hold, readers, scoped, B only.
module bind_latch #(
    parameter CONTEXTS = 64,
    parameter BITS = 11
) (
    input  wire                        clk,
    input  wire                        reset,
    input  wire                        issue,
    input  wire [$clog2(CONTEXTS)-1:0] context_number,
    input  wire                        is_bind,
    input  wire [BITS-1:0]             bind_bits,
    input  wire [CONTEXTS-1:0]         drop,      // contexts whose weft ends or starts anew
    output wire [BITS-1:0]             bound,     // of the instruction that issues now
    output reg  [CONTEXTS*BITS-1:0]    kept       // of all, for a trap to save
);
    assign bound = kept[BITS*context_number+:BITS];

    integer c;
    always @(posedge clk)
        for (c = 0; c < CONTEXTS; c = c + 1)
            if (reset || drop[c])
                kept[BITS*c+:BITS] <= 0;
            else if (issue && context_number == c[$clog2(CONTEXTS)-1:0])
                kept[BITS*c+:BITS] <= is_bind ? bind_bits : {BITS{1'b0}};
endmodule
