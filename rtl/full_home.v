// F of the registers of one subpartition, where all their writers are: a part for each reading subpartition, and a last
// one for whoever consumes. Set wins. A change names parts; `range` clears all parts of a range.
module full_home #(
    parameter SUBPARTITIONS = 4,
    parameter REGISTERS = 512,
    parameter SIZE = 3,
    parameter SETS = 4,
    parameter CLEARS = 20,
    parameter HOME = 0
) (
    input  wire                                    clk,
    input  wire                                    reset,
    input  wire [SETS-1:0]                         set_valid,
    input  wire [SETS*(SUBPARTITIONS+1)-1:0]       set_parts,
    input  wire [SETS*$clog2(SUBPARTITIONS)-1:0]   set_place,
    input  wire [SETS*$clog2(REGISTERS)-1:0]       set_number,
    input  wire [SETS*SIZE-1:0]                    set_size,
    input  wire [CLEARS-1:0]                       clear_valid,
    input  wire [CLEARS*(SUBPARTITIONS+1)-1:0]     clear_parts,
    input  wire [CLEARS*$clog2(SUBPARTITIONS)-1:0] clear_place,
    input  wire [CLEARS*$clog2(REGISTERS)-1:0]     clear_number,
    input  wire [CLEARS*SIZE-1:0]                  clear_size,
    input  wire [REGISTERS-1:0]                    range,
    input  wire                                    lookup_valid,
    input  wire [$clog2(REGISTERS)-1:0]            lookup_number,
    input  wire [SIZE-1:0]                         lookup_size,
    output reg  [REGISTERS-1:0]                    full,  // any part
    output wire                                    found  // a register of the group is full
);
    localparam PARTS = SUBPARTITIONS + 1;
    localparam PLACE = $clog2(SUBPARTITIONS);

    wire [SETS*REGISTERS-1:0] set_hit;
    wire [CLEARS*REGISTERS-1:0] clear_hit;
    reg [PARTS*REGISTERS-1:0] parts;
    genvar g;
    generate
        for (g = 0; g < SETS; g = g + 1) begin : sets
            changed_registers #(
                .SUBPARTITIONS(SUBPARTITIONS), .REGISTERS(REGISTERS), .SIZE(SIZE), .CHANGES(1), .HOME(HOME)
            ) one (
                .valid(set_valid[g]), .place(set_place[PLACE*g+:PLACE]),
                .number(set_number[$clog2(REGISTERS)*g+:$clog2(REGISTERS)]), .size(set_size[SIZE*g+:SIZE]),
                .changed(set_hit[REGISTERS*g+:REGISTERS])
            );
        end
        for (g = 0; g < CLEARS; g = g + 1) begin : clears
            changed_registers #(
                .SUBPARTITIONS(SUBPARTITIONS), .REGISTERS(REGISTERS), .SIZE(SIZE), .CHANGES(1), .HOME(HOME)
            ) one (
                .valid(clear_valid[g]), .place(clear_place[PLACE*g+:PLACE]),
                .number(clear_number[$clog2(REGISTERS)*g+:$clog2(REGISTERS)]), .size(clear_size[SIZE*g+:SIZE]),
                .changed(clear_hit[REGISTERS*g+:REGISTERS])
            );
        end
    endgenerate

    integer part, k, c;
    reg [REGISTERS-1:0] set, clear;
    reg [PARTS*REGISTERS-1:0] following;
    always @* begin
        following = 0;
        for (part = 0; part < PARTS; part = part + 1) begin
            set = 0;
            clear = range;
            for (k = 0; k < SETS; k = k + 1)
                set = set | (set_hit[REGISTERS*k+:REGISTERS] & {REGISTERS{set_parts[PARTS*k+part]}});
            for (c = 0; c < CLEARS; c = c + 1)
                clear = clear | (clear_hit[REGISTERS*c+:REGISTERS] & {REGISTERS{clear_parts[PARTS*c+part]}});
            following[REGISTERS*part+:REGISTERS] = set | (parts[REGISTERS*part+:REGISTERS] & ~clear);
        end
    end

    always @(posedge clk)
        parts <= reset ? {PARTS*REGISTERS{1'b0}} : following;

    integer p;
    always @* begin
        full = 0;
        for (p = 0; p < PARTS; p = p + 1)
            full = full | parts[REGISTERS*p+:REGISTERS];
    end

    wire [REGISTERS-1:0] group;
    group_decode #(.REGISTERS(REGISTERS), .SIZE(SIZE)) decode (
        .valid(lookup_valid), .number(lookup_number), .size(lookup_size), .hit(group)
    );
    assign found = |(group & full);
endmodule
