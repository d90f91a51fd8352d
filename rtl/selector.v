// Selector of a subpartition: which bank read ports of the SM the operands of one instruction need.
// Port p = place * BANKS + bank. A group of 2^size registers is aligned; one of BANKS registers or more is in every bank.
module selector #(
    parameter SUBPARTITIONS = 4,
    parameter BANKS = 2,
    parameter SLOTS = 4
) (
    input  wire [SLOTS-1:0]                       slot_valid,
    input  wire [SLOTS*$clog2(SUBPARTITIONS)-1:0] slot_place,
    input  wire [SLOTS*2-1:0]                     slot_low,   // the two low bits of the first register's number
    input  wire [SLOTS*2-1:0]                     slot_size,
    output reg  [SUBPARTITIONS*BANKS-1:0]         enable
);
    localparam PLACE = $clog2(SUBPARTITIONS);

    wire [SLOTS*4-1:0] mask;
    genvar s;
    generate
        for (s = 0; s < SLOTS; s = s + 1) begin : slots
            operand_mask mask_of (.low(slot_low[2*s+:2]), .size(slot_size[2*s+:2]), .mask(mask[4*s+:4]));
        end
    endgenerate

    integer slot, place, member;
    always @* begin
        enable = 0;
        for (slot = 0; slot < SLOTS; slot = slot + 1)
            for (place = 0; place < SUBPARTITIONS; place = place + 1)
                for (member = 0; member < 4; member = member + 1)
                    if (slot_valid[slot] && slot_place[PLACE*slot+:PLACE] == place[PLACE-1:0] && mask[4*slot+member])
                        enable[place * BANKS + member % BANKS] = 1'b1;
    end
endmodule
