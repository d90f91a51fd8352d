// E of the registers of one subpartition, as one subpartition sees it. Set wins. `range` sets all of a range (SETFIBER
// with ALL) or clears it (end of a FIBER-thread).
module empty_home #(
    parameter SUBPARTITIONS = 4,
    parameter REGISTERS = 512,
    parameter SIZE = 3,
    parameter SETS = 20,
    parameter CLEARS = 12,
    parameter LOOKUPS = 4,
    parameter HOME = 0
) (
    input  wire                                       clk,
    input  wire                                       reset,
    input  wire [SETS-1:0]                            set_valid,
    input  wire [SETS*$clog2(SUBPARTITIONS)-1:0]      set_place,
    input  wire [SETS*$clog2(REGISTERS)-1:0]          set_number,
    input  wire [SETS*SIZE-1:0]                       set_size,
    input  wire [CLEARS-1:0]                          clear_valid,
    input  wire [CLEARS*$clog2(SUBPARTITIONS)-1:0]    clear_place,
    input  wire [CLEARS*$clog2(REGISTERS)-1:0]        clear_number,
    input  wire [CLEARS*SIZE-1:0]                     clear_size,
    input  wire [REGISTERS-1:0]                       range,
    input  wire                                       range_value,
    input  wire [LOOKUPS-1:0]                         lookup_valid,
    input  wire [LOOKUPS*$clog2(SUBPARTITIONS)-1:0]   lookup_place,
    input  wire [LOOKUPS*$clog2(REGISTERS)-1:0]       lookup_number,
    input  wire [LOOKUPS*SIZE-1:0]                    lookup_size,
    output reg  [REGISTERS-1:0]                       empty,
    output wire [LOOKUPS-1:0]                         found  // a register of the group is empty
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);

    wire [REGISTERS-1:0] set, clear;
    changed_registers #(
        .SUBPARTITIONS(SUBPARTITIONS), .REGISTERS(REGISTERS), .SIZE(SIZE), .CHANGES(SETS), .HOME(HOME)
    ) sets (.valid(set_valid), .place(set_place), .number(set_number), .size(set_size), .changed(set));
    changed_registers #(
        .SUBPARTITIONS(SUBPARTITIONS), .REGISTERS(REGISTERS), .SIZE(SIZE), .CHANGES(CLEARS), .HOME(HOME)
    ) clears (.valid(clear_valid), .place(clear_place), .number(clear_number), .size(clear_size), .changed(clear));

    always @(posedge clk)
        if (reset)
            empty <= 0;
        else
            empty <= set | (range & {REGISTERS{range_value}}) | (empty & ~clear & ~range);

    genvar k;
    generate
        for (k = 0; k < LOOKUPS; k = k + 1) begin : lookups
            wire [REGISTERS-1:0] group;
            group_decode #(.REGISTERS(REGISTERS), .SIZE(SIZE)) decode (
                .valid(lookup_valid[k] && lookup_place[PLACE*k+:PLACE] == HOME[PLACE-1:0]),
                .number(lookup_number[INDEX*k+:INDEX]), .size(lookup_size[SIZE*k+:SIZE]), .hit(group)
            );
            assign found[k] = |(group & empty);
        end
    endgenerate
endmodule
