// Which registers of an aligned quad an aligned group of 1, 2 or 4 registers has.
module operand_mask (
    input  wire [1:0] low,   // the two low bits of the first register's number
    input  wire [1:0] size,  // log2 of the count
    output wire [3:0] mask
);
    wire [1:0] ones  = low | {size[1], |size};   // a bit of a member's number may be 1, or may be 0
    wire [1:0] zeros = ~low | {size[1], |size};
    assign mask = {ones[1] & ones[0], ones[1] & zeros[0], zeros[1] & ones[0], zeros[1] & zeros[0]};
endmodule
