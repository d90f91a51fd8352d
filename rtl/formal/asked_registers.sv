// What the proofs of the read ports take a request to ask for, slot by slot and register by register: the unit compares
// quads and masks instead. A group of 2^size registers is aligned; the low bits of its number do not count.
module asked_registers #(
    parameter SUBPARTITIONS = 4,
    parameter BANKS = 2,
    parameter REGISTERS = 512,
    parameter SLOTS = 4
) (
    input  wire [SLOTS-1:0]                                     slot_valid,
    input  wire [SLOTS*$clog2(SUBPARTITIONS)-1:0]               slot_place,
    input  wire [SLOTS*$clog2(REGISTERS)-1:0]                   slot_number,
    input  wire [SLOTS*2-1:0]                                   slot_size,
    input  wire [$clog2(SUBPARTITIONS)+$clog2(REGISTERS)-1:0]   register,  // {place, number}
    output reg                                                  asked,     // the register
    output reg  [SUBPARTITIONS*BANKS-1:0]                       ports,     // those that it needs
    output reg  [SUBPARTITIONS*BANKS*4-1:0]                     counts     // distinct registers of each
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);

    // Register `number` is one of slot s.
    function has(input integer s, input [PLACE-1:0] place, input [INDEX-1:0] number);
        has = slot_valid[s] && slot_place[PLACE*s+:PLACE] == place
            && (number | low(s)) == (slot_number[INDEX*s+:INDEX] | low(s));
    endfunction
    function [INDEX-1:0] low(input integer s);
        low = slot_size[2*s+1] ? 3 : slot_size[2*s];
    endfunction

    integer s, m, e;
    reg [INDEX-1:0] number;
    reg [PLACE-1:0] place;
    reg fresh;
    always @* begin
        asked = 0;
        counts = 0;
        for (s = 0; s < SLOTS; s = s + 1)
            asked = asked | has(s, register[INDEX+:PLACE], register[0+:INDEX]);
        for (s = 0; s < SLOTS; s = s + 1)
            for (m = 0; m < 4; m = m + 1) begin
                place = slot_place[PLACE*s+:PLACE];
                number = slot_number[INDEX*s+:INDEX] & ~3 | m;
                fresh = has(s, place, number);
                for (e = 0; e < s; e = e + 1)
                    fresh = fresh & ~has(e, place, number);
                for (e = 0; e < SUBPARTITIONS; e = e + 1)
                    if (place == e)
                        counts[4*(e*BANKS+m%BANKS)+:4] = counts[4*(e*BANKS+m%BANKS)+:4] + fresh;
            end
        for (e = 0; e < SUBPARTITIONS * BANKS; e = e + 1)
            ports[e] = counts[4*e+:4] != 0;
    end
endmodule
