// What one instruction asks of the read ports: which ports, how many distinct registers of each, and which are asked
// of a port more than once. Port p = place * BANKS + bank.
module port_request #(
    parameter SUBPARTITIONS = 4,
    parameter BANKS = 2,
    parameter REGISTERS = 512,
    parameter SLOTS = 4
) (
    input  wire [SLOTS-1:0]                       slot_valid,
    input  wire [SLOTS*$clog2(SUBPARTITIONS)-1:0] slot_place,
    input  wire [SLOTS*$clog2(REGISTERS)-1:0]     slot_number,
    input  wire [SLOTS*2-1:0]                     slot_size,
    output reg  [SLOTS*4-1:0]                     mask,   // registers of the slot's quad, none twice
    output reg  [SUBPARTITIONS*BANKS-1:0]         want,
    output reg  [SUBPARTITIONS*BANKS-1:0]         heavy,  // more than one register
    output reg  [SUBPARTITIONS*BANKS*4-1:0]       reads
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);

    wire [SLOTS*4-1:0] all;
    genvar s;
    generate
        for (s = 0; s < SLOTS; s = s + 1) begin : slots
            operand_mask mask_of (.low(slot_number[INDEX*s+:2]), .size(slot_size[2*s+:2]), .mask(all[4*s+:4]));
        end
    endgenerate

    integer slot, other;
    always @* begin
        mask = all;
        for (slot = 0; slot < SLOTS; slot = slot + 1)
            for (other = 0; other < slot; other = other + 1)
                if (slot_valid[other]
                    && slot_place[PLACE*slot+:PLACE] == slot_place[PLACE*other+:PLACE]
                    && slot_number[INDEX*slot+2+:INDEX-2] == slot_number[INDEX*other+2+:INDEX-2])
                    mask[4*slot+:4] = mask[4*slot+:4] & ~all[4*other+:4];
        for (slot = 0; slot < SLOTS; slot = slot + 1)
            if (!slot_valid[slot])
                mask[4*slot+:4] = 4'b0;
    end

    integer at, port, member;
    reg [3:0] count;
    always @* begin
        want = 0;
        heavy = 0;
        reads = 0;
        for (port = 0; port < SUBPARTITIONS * BANKS; port = port + 1) begin
            count = 4'b0;
            for (at = 0; at < SLOTS; at = at + 1)
                for (member = port % BANKS; member < 4; member = member + BANKS)
                    if (slot_place[PLACE*at+:PLACE] == port[$clog2(BANKS)+:PLACE])
                        count = count + {3'b0, mask[4*at+member]};
            reads[4*port+:4] = count;
            want[port] = |count;
            heavy[port] = |count[3:1];
        end
    end
endmodule
