// Crossbar of one bank: each subpartition takes a register from one subpartition. Configured at issue: the select is kept
// one-hot in flops, and the data of the next cycle go through. `copies` of the select drive LANES / COPIES lanes each.
module crossbar #(
    parameter SUBPARTITIONS = 4,
    parameter LANES = 32,
    parameter LANE_BITS = 32,
    parameter COPIES = 4
) (
    input  wire                                            clk,
    input  wire                                            reset,
    input  wire [SUBPARTITIONS-1:0]                        enable,
    input  wire [SUBPARTITIONS*$clog2(SUBPARTITIONS)-1:0]  select,
    input  wire [SUBPARTITIONS*LANES*LANE_BITS-1:0]        data,
    output wire [SUBPARTITIONS*LANES*LANE_BITS-1:0]        routed
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam PART = LANES * LANE_BITS / COPIES;
    localparam WIDTH = LANES * LANE_BITS;

    reg [SUBPARTITIONS*SUBPARTITIONS-1:0] chosen;  // [destination][source]
    integer to, from;
    always @*
        for (to = 0; to < SUBPARTITIONS; to = to + 1)
            for (from = 0; from < SUBPARTITIONS; from = from + 1)
                chosen[to*SUBPARTITIONS+from] = enable[to] && select[PLACE*to+:PLACE] == from[PLACE-1:0];

    genvar c, d;
    generate
        for (c = 0; c < COPIES; c = c + 1) begin : copies
            (* keep *) reg [SUBPARTITIONS*SUBPARTITIONS-1:0] kept;
            always @(posedge clk)
                kept <= reset ? {SUBPARTITIONS*SUBPARTITIONS{1'b0}} : chosen;
            for (d = 0; d < SUBPARTITIONS; d = d + 1) begin : destinations
                reg [PART-1:0] one;
                integer s;
                always @* begin
                    one = 0;
                    for (s = 0; s < SUBPARTITIONS; s = s + 1)
                        one = one | (data[WIDTH*s+PART*c+:PART] & {PART{kept[d*SUBPARTITIONS+s]}});
                end
                assign routed[WIDTH*d+PART*c+:PART] = one;
            end
        end
    endgenerate
endmodule
