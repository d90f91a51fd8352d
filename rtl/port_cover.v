// On which ports a request asks for a register that another request does not ask for.
module port_cover #(
    parameter SUBPARTITIONS = 4,
    parameter BANKS = 2,
    parameter REGISTERS = 512,
    parameter SLOTS = 4
) (
    input  wire [SLOTS*$clog2(SUBPARTITIONS)-1:0] place,
    input  wire [SLOTS*$clog2(REGISTERS)-1:0]     number,
    input  wire [SLOTS*4-1:0]                     mask,
    input  wire [SLOTS*$clog2(SUBPARTITIONS)-1:0] other_place,
    input  wire [SLOTS*$clog2(REGISTERS)-1:0]     other_number,
    input  wire [SLOTS*4-1:0]                     other_mask,
    output reg  [SUBPARTITIONS*BANKS-1:0]         uncovered
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);

    integer slot, other, member, port;
    reg [SLOTS*4-1:0] left;
    always @* begin
        left = mask;
        for (slot = 0; slot < SLOTS; slot = slot + 1)
            for (other = 0; other < SLOTS; other = other + 1)
                if (place[PLACE*slot+:PLACE] == other_place[PLACE*other+:PLACE]
                    && number[INDEX*slot+2+:INDEX-2] == other_number[INDEX*other+2+:INDEX-2])
                    left[4*slot+:4] = left[4*slot+:4] & ~other_mask[4*other+:4];
        uncovered = 0;
        for (port = 0; port < SUBPARTITIONS * BANKS; port = port + 1)
            for (slot = 0; slot < SLOTS; slot = slot + 1)
                for (member = port % BANKS; member < 4; member = member + BANKS)
                    if (place[PLACE*slot+:PLACE] == port[$clog2(BANKS)+:PLACE] && left[4*slot+member])
                        uncovered[port] = 1'b1;
    end
endmodule
