// Which of REGISTERS registers an aligned group of 2^size from `number` on has.
module group_decode #(
    parameter REGISTERS = 512,
    parameter SIZE = 3
) (
    input  wire                         valid,
    input  wire [$clog2(REGISTERS)-1:0] number,
    input  wire [SIZE-1:0]              size,
    output reg  [REGISTERS-1:0]         hit
);
    localparam INDEX = $clog2(REGISTERS);

    // With each bit of the number the registers double: those with a zero there, and above them those with a one. Below
    // the size both are members.
    integer k;
    reg free;
    always @* begin
        hit = 0;
        hit[0] = valid;
        for (k = 0; k < INDEX; k = k + 1) begin
            free = size > k;
            hit = ({REGISTERS{number[k] | free}} & (hit << (1 << k))) | ({REGISTERS{~number[k] | free}} & hit);
        end
    end
endmodule
