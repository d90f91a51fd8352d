// Read-port arbiter of an SM: who of the subpartitions' selected instructions reads in this cycle. It has no memory; one
// chain a starting place works in parallel, and the start, which is known early, selects late.
module read_port_arbiter #(
    parameter SUBPARTITIONS = 4,
    parameter BANKS = 2,
    parameter REGISTERS = 512,
    parameter SLOTS = 4
) (
    input  wire [$clog2(SUBPARTITIONS)-1:0]                     start,
    input  wire [SUBPARTITIONS-1:0]                             valid,
    input  wire [SUBPARTITIONS-1:0]                             remote,
    input  wire [SUBPARTITIONS*SLOTS-1:0]                       slot_valid,
    input  wire [SUBPARTITIONS*SLOTS*$clog2(SUBPARTITIONS)-1:0] slot_place,
    input  wire [SUBPARTITIONS*SLOTS*$clog2(REGISTERS)-1:0]     slot_number,
    input  wire [SUBPARTITIONS*SLOTS*2-1:0]                     slot_size,
    input  wire [SUBPARTITIONS*BANKS-1:0]                       free,   // the port reads nothing else in this cycle
    input  wire [SUBPARTITIONS*BANKS-1:0]                       near,   // it is free in the next cycle
    output wire [SUBPARTITIONS-1:0]                             grant,
    output wire [SUBPARTITIONS*SUBPARTITIONS*BANKS-1:0]         want,   // of each subpartition
    output wire [SUBPARTITIONS*SUBPARTITIONS*BANKS*4-1:0]       reads   // distinct registers of each port
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);
    localparam PORTS = SUBPARTITIONS * BANKS;

    wire [SUBPARTITIONS*PORTS-1:0] heavy;
    wire [SUBPARTITIONS*SLOTS*4-1:0] mask;
    wire [SUBPARTITIONS*SUBPARTITIONS*PORTS-1:0] uncovered;
    wire [SUBPARTITIONS*SUBPARTITIONS-1:0] by_start;
    genvar i, j;
    generate
        for (i = 0; i < SUBPARTITIONS; i = i + 1) begin : requesters
            port_request #(
                .SUBPARTITIONS(SUBPARTITIONS), .BANKS(BANKS), .REGISTERS(REGISTERS), .SLOTS(SLOTS)
            ) request (
                .slot_valid(slot_valid[SLOTS*i+:SLOTS]), .slot_place(slot_place[SLOTS*PLACE*i+:SLOTS*PLACE]),
                .slot_number(slot_number[SLOTS*INDEX*i+:SLOTS*INDEX]), .slot_size(slot_size[SLOTS*2*i+:SLOTS*2]),
                .mask(mask[SLOTS*4*i+:SLOTS*4]), .want(want[PORTS*i+:PORTS]), .heavy(heavy[PORTS*i+:PORTS]),
                .reads(reads[PORTS*4*i+:PORTS*4])
            );
            for (j = 0; j < SUBPARTITIONS; j = j + 1) begin : others
                if (i == j) begin : itself
                    assign uncovered[(i*SUBPARTITIONS+j)*PORTS+:PORTS] = {PORTS{1'b0}};
                end else begin : another
                    port_cover #(
                        .SUBPARTITIONS(SUBPARTITIONS), .BANKS(BANKS), .REGISTERS(REGISTERS), .SLOTS(SLOTS)
                    ) cover_of (
                        .place(slot_place[SLOTS*PLACE*i+:SLOTS*PLACE]),
                        .number(slot_number[SLOTS*INDEX*i+:SLOTS*INDEX]), .mask(mask[SLOTS*4*i+:SLOTS*4]),
                        .other_place(slot_place[SLOTS*PLACE*j+:SLOTS*PLACE]),
                        .other_number(slot_number[SLOTS*INDEX*j+:SLOTS*INDEX]),
                        .other_mask(mask[SLOTS*4*j+:SLOTS*4]),
                        .uncovered(uncovered[(i*SUBPARTITIONS+j)*PORTS+:PORTS])
                    );
                end
            end
            grant_chain #(
                .REQUESTERS(SUBPARTITIONS), .PORTS(PORTS), .FIRST(i)
            ) chain (
                .valid(valid), .remote(remote), .want(want), .heavy(heavy), .uncovered(uncovered), .free(free),
                .near(near), .grant(by_start[SUBPARTITIONS*i+:SUBPARTITIONS])
            );
        end
    endgenerate
    assign grant = by_start[SUBPARTITIONS*start+:SUBPARTITIONS];
endmodule
