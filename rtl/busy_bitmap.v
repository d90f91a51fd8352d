// The register busy bitmap of an SM: E with one replica in each subpartition, F at the register's home. Changes come
// from the subpartition of the weft that causes them (its origin), in the cycle before they are seen there; other
// subpartitions see them DELAY cycles later, all in order and by the same delay. In a cycle set wins.
// Ports are bundles [origin][change]; a scoped set of E changes the origin's own replica only.
module busy_bitmap #(
    parameter SUBPARTITIONS = 4,
    parameter REGISTERS = 512,      // of a subpartition
    parameter DELAY = 1,
    parameter SIZE = 3,             // bits of the log2 of a group's registers
    parameter EMPTY_SETS = 5,       // of an origin in a cycle: destination, four consumed slots
    parameter EMPTY_CLEARS = 3,     // two write-backs, a DEPBAR
    parameter FULL_SETS = 1,        // a hold or a DEPBAR
    parameter FULL_CLEARS = 5,      // four consumptions, a DEPBAR
    parameter LOOKUPS = 4           // source slots of the instruction that wants to issue
) (
    input  wire                                                                 clk,
    input  wire                                                                 reset,
    input  wire [SUBPARTITIONS*EMPTY_SETS-1:0]                                  empty_set_valid,
    input  wire [SUBPARTITIONS*EMPTY_SETS-1:0]                                  empty_set_scoped,
    input  wire [SUBPARTITIONS*EMPTY_SETS*$clog2(SUBPARTITIONS)-1:0]            empty_set_place,
    input  wire [SUBPARTITIONS*EMPTY_SETS*$clog2(REGISTERS)-1:0]                empty_set_number,
    input  wire [SUBPARTITIONS*EMPTY_SETS*SIZE-1:0]                             empty_set_size,
    input  wire [SUBPARTITIONS*EMPTY_CLEARS-1:0]                                empty_clear_valid,
    input  wire [SUBPARTITIONS*EMPTY_CLEARS*$clog2(SUBPARTITIONS)-1:0]          empty_clear_place,
    input  wire [SUBPARTITIONS*EMPTY_CLEARS*$clog2(REGISTERS)-1:0]              empty_clear_number,
    input  wire [SUBPARTITIONS*EMPTY_CLEARS*SIZE-1:0]                           empty_clear_size,
    input  wire [SUBPARTITIONS*FULL_SETS-1:0]                                   full_set_valid,
    input  wire [SUBPARTITIONS*FULL_SETS*(SUBPARTITIONS+1)-1:0]                 full_set_parts,
    input  wire [SUBPARTITIONS*FULL_SETS*$clog2(SUBPARTITIONS)-1:0]             full_set_place,
    input  wire [SUBPARTITIONS*FULL_SETS*$clog2(REGISTERS)-1:0]                 full_set_number,
    input  wire [SUBPARTITIONS*FULL_SETS*SIZE-1:0]                              full_set_size,
    input  wire [SUBPARTITIONS*FULL_CLEARS-1:0]                                 full_clear_valid,
    input  wire [SUBPARTITIONS*FULL_CLEARS*(SUBPARTITIONS+1)-1:0]               full_clear_parts,
    input  wire [SUBPARTITIONS*FULL_CLEARS*$clog2(SUBPARTITIONS)-1:0]           full_clear_place,
    input  wire [SUBPARTITIONS*FULL_CLEARS*$clog2(REGISTERS)-1:0]               full_clear_number,
    input  wire [SUBPARTITIONS*FULL_CLEARS*SIZE-1:0]                            full_clear_size,
    input  wire                                                                 range_valid,  // no delay: all at rest
    input  wire                                                                 range_empty,  // 1: ALL, 0: the end
    input  wire [SUBPARTITIONS*($clog2(REGISTERS)+1)-1:0]                       range_first,
    input  wire [SUBPARTITIONS*($clog2(REGISTERS)+1)-1:0]                       range_limit,
    input  wire [SUBPARTITIONS*LOOKUPS-1:0]                                     source_valid,
    input  wire [SUBPARTITIONS*LOOKUPS*$clog2(SUBPARTITIONS)-1:0]               source_place,
    input  wire [SUBPARTITIONS*LOOKUPS*$clog2(REGISTERS)-1:0]                   source_number,
    input  wire [SUBPARTITIONS*LOOKUPS*SIZE-1:0]                                source_size,
    input  wire [SUBPARTITIONS-1:0]                                             destination_valid,
    input  wire [SUBPARTITIONS*$clog2(REGISTERS)-1:0]                           destination_number,
    input  wire [SUBPARTITIONS*SIZE-1:0]                                        destination_size,
    output wire [SUBPARTITIONS-1:0]                                             pool_empty,   // a source is not ready
    output wire [SUBPARTITIONS-1:0]                                             pool_full,    // not released yet
    output wire [SUBPARTITIONS*SUBPARTITIONS*REGISTERS-1:0]                     empty,        // [view][place][register]
    output wire [SUBPARTITIONS*REGISTERS-1:0]                                   full
);
    localparam S = SUBPARTITIONS;
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);
    localparam GROUP = PLACE + INDEX + SIZE;
    localparam PARTS = S + 1;
    localparam ES = EMPTY_SETS, EC = EMPTY_CLEARS, FS = FULL_SETS, FC = FULL_CLEARS;
    localparam ES_BITS = ES * (2 + GROUP), EC_BITS = EC * (1 + GROUP);
    localparam FS_BITS = FS * (1 + PARTS + GROUP), FC_BITS = FC * (1 + PARTS + GROUP);
    localparam BUNDLE = ES_BITS + EC_BITS + FS_BITS + FC_BITS;

    wire [S*REGISTERS-1:0] range;
    wire [S*BUNDLE-1:0] now, later;
    genvar o, v, h;
    generate
        for (o = 0; o < S; o = o + 1) begin : origins
            assign now[BUNDLE*o+:BUNDLE] = {
                full_clear_valid[FC*o+:FC], full_clear_parts[FC*PARTS*o+:FC*PARTS],
                full_clear_place[FC*PLACE*o+:FC*PLACE], full_clear_number[FC*INDEX*o+:FC*INDEX],
                full_clear_size[FC*SIZE*o+:FC*SIZE],
                full_set_valid[FS*o+:FS], full_set_parts[FS*PARTS*o+:FS*PARTS],
                full_set_place[FS*PLACE*o+:FS*PLACE], full_set_number[FS*INDEX*o+:FS*INDEX],
                full_set_size[FS*SIZE*o+:FS*SIZE],
                empty_clear_valid[EC*o+:EC], empty_clear_place[EC*PLACE*o+:EC*PLACE],
                empty_clear_number[EC*INDEX*o+:EC*INDEX], empty_clear_size[EC*SIZE*o+:EC*SIZE],
                empty_set_valid[ES*o+:ES], empty_set_scoped[ES*o+:ES], empty_set_place[ES*PLACE*o+:ES*PLACE],
                empty_set_number[ES*INDEX*o+:ES*INDEX], empty_set_size[ES*SIZE*o+:ES*SIZE]
            };
            delay_line #(.WIDTH(BUNDLE), .DELAY(DELAY)) broadcast (
                .clk(clk), .reset(reset), .in(now[BUNDLE*o+:BUNDLE]), .out(later[BUNDLE*o+:BUNDLE])
            );
            range_decode #(.REGISTERS(REGISTERS)) range_of (
                .valid(range_valid), .first(range_first[(INDEX+1)*o+:INDEX+1]),
                .limit(range_limit[(INDEX+1)*o+:INDEX+1]), .hit(range[REGISTERS*o+:REGISTERS])
            );
        end

        for (v = 0; v < S; v = v + 1) begin : places
            // What this place sees in this cycle: its own changes at once, those of others late.
            wire [S*ES-1:0] set_valid, set_scoped;
            wire [S*ES*PLACE-1:0] set_place;
            wire [S*ES*INDEX-1:0] set_number;
            wire [S*ES*SIZE-1:0] set_size;
            wire [S*EC-1:0] clear_valid;
            wire [S*EC*PLACE-1:0] clear_place;
            wire [S*EC*INDEX-1:0] clear_number;
            wire [S*EC*SIZE-1:0] clear_size;
            wire [S*FS-1:0] hold_valid;
            wire [S*FS*PARTS-1:0] hold_parts;
            wire [S*FS*PLACE-1:0] hold_place;
            wire [S*FS*INDEX-1:0] hold_number;
            wire [S*FS*SIZE-1:0] hold_size;
            wire [S*FC-1:0] release_valid;
            wire [S*FC*PARTS-1:0] release_parts;
            wire [S*FC*PLACE-1:0] release_place;
            wire [S*FC*INDEX-1:0] release_number;
            wire [S*FC*SIZE-1:0] release_size;
            for (o = 0; o < S; o = o + 1) begin : seen
                wire [ES-1:0] valid;
                assign {
                    release_valid[FC*o+:FC], release_parts[FC*PARTS*o+:FC*PARTS], release_place[FC*PLACE*o+:FC*PLACE],
                    release_number[FC*INDEX*o+:FC*INDEX], release_size[FC*SIZE*o+:FC*SIZE],
                    hold_valid[FS*o+:FS], hold_parts[FS*PARTS*o+:FS*PARTS], hold_place[FS*PLACE*o+:FS*PLACE],
                    hold_number[FS*INDEX*o+:FS*INDEX], hold_size[FS*SIZE*o+:FS*SIZE],
                    clear_valid[EC*o+:EC], clear_place[EC*PLACE*o+:EC*PLACE], clear_number[EC*INDEX*o+:EC*INDEX],
                    clear_size[EC*SIZE*o+:EC*SIZE],
                    valid, set_scoped[ES*o+:ES], set_place[ES*PLACE*o+:ES*PLACE],
                    set_number[ES*INDEX*o+:ES*INDEX], set_size[ES*SIZE*o+:ES*SIZE]
                } = (o == v) ? now[BUNDLE*o+:BUNDLE] : later[BUNDLE*o+:BUNDLE];
                assign set_valid[ES*o+:ES] = (o == v) ? valid : valid & ~set_scoped[ES*o+:ES];
            end

            wire [S*LOOKUPS-1:0] found;
            for (h = 0; h < S; h = h + 1) begin : homes
                empty_home #(
                    .SUBPARTITIONS(S), .REGISTERS(REGISTERS), .SIZE(SIZE), .SETS(S*ES), .CLEARS(S*EC),
                    .LOOKUPS(LOOKUPS), .HOME(h)
                ) bank (
                    .clk(clk), .reset(reset), .set_valid(set_valid), .set_place(set_place), .set_number(set_number),
                    .set_size(set_size), .clear_valid(clear_valid), .clear_place(clear_place),
                    .clear_number(clear_number), .clear_size(clear_size), .range(range[REGISTERS*h+:REGISTERS]),
                    .range_value(range_empty), .lookup_valid(source_valid[LOOKUPS*v+:LOOKUPS]),
                    .lookup_place(source_place[LOOKUPS*PLACE*v+:LOOKUPS*PLACE]),
                    .lookup_number(source_number[LOOKUPS*INDEX*v+:LOOKUPS*INDEX]),
                    .lookup_size(source_size[LOOKUPS*SIZE*v+:LOOKUPS*SIZE]),
                    .empty(empty[(S*v+h)*REGISTERS+:REGISTERS]), .found(found[LOOKUPS*h+:LOOKUPS])
                );
            end
            assign pool_empty[v] = |found;

            full_home #(
                .SUBPARTITIONS(S), .REGISTERS(REGISTERS), .SIZE(SIZE), .SETS(S*FS), .CLEARS(S*FC), .HOME(v)
            ) home (
                .clk(clk), .reset(reset), .set_valid(hold_valid), .set_parts(hold_parts), .set_place(hold_place),
                .set_number(hold_number), .set_size(hold_size), .clear_valid(release_valid),
                .clear_parts(release_parts), .clear_place(release_place), .clear_number(release_number),
                .clear_size(release_size), .range(range[REGISTERS*v+:REGISTERS]),
                .lookup_valid(destination_valid[v]), .lookup_number(destination_number[INDEX*v+:INDEX]),
                .lookup_size(destination_size[SIZE*v+:SIZE]), .full(full[REGISTERS*v+:REGISTERS]),
                .found(pool_full[v])
            );
        end
    endgenerate
endmodule
