// The registers first, first + 1, ..., limit - 1.
module range_decode #(
    parameter REGISTERS = 512
) (
    input  wire                         valid,
    input  wire [$clog2(REGISTERS):0]   first,
    input  wire [$clog2(REGISTERS):0]   limit,
    output wire [REGISTERS-1:0]         hit
);
    localparam INDEX = $clog2(REGISTERS);
    localparam [REGISTERS:0] ONE = 1;

    // 2^limit - 2^first has exactly these bits; bit REGISTERS falls off.
    wire [REGISTERS:0] above_first = ~((ONE << first) - ONE);
    wire [REGISTERS:0] below_limit = (ONE << limit) - ONE;
    wire [REGISTERS:0] both = above_first & below_limit;
    assign hit = both[REGISTERS-1:0] & {REGISTERS{valid}};
endmodule
