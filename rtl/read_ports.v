// The read ports of an SM: the arbiter, and for each port how many cycles of reads are still to come. An instruction
// that wants n registers of a port takes it for n cycles; `extra` is what it takes beyond one, shared ports included.
module read_ports #(
    parameter SUBPARTITIONS = 4,
    parameter BANKS = 2,
    parameter REGISTERS = 512,
    parameter SLOTS = 4
) (
    input  wire                                                 clk,
    input  wire                                                 reset,
    input  wire [$clog2(SUBPARTITIONS)-1:0]                     start,
    input  wire [SUBPARTITIONS-1:0]                             valid,
    input  wire [SUBPARTITIONS-1:0]                             remote,
    input  wire [SUBPARTITIONS*SLOTS-1:0]                       slot_valid,
    input  wire [SUBPARTITIONS*SLOTS*$clog2(SUBPARTITIONS)-1:0] slot_place,
    input  wire [SUBPARTITIONS*SLOTS*$clog2(REGISTERS)-1:0]     slot_number,
    input  wire [SUBPARTITIONS*SLOTS*2-1:0]                     slot_size,
    output wire [SUBPARTITIONS-1:0]                             grant,
    output reg  [SUBPARTITIONS*4-1:0]                           extra,
    output wire [SUBPARTITIONS*BANKS*5-1:0]                     backlog
);
    localparam PORTS = SUBPARTITIONS * BANKS;

    reg  [PORTS*5-1:0] left;
    reg  [PORTS-1:0] free, near;
    wire [SUBPARTITIONS*PORTS*4-1:0] reads;
    assign backlog = left;

    read_port_arbiter #(
        .SUBPARTITIONS(SUBPARTITIONS), .BANKS(BANKS), .REGISTERS(REGISTERS), .SLOTS(SLOTS)
    ) arbiter (
        .start(start), .valid(valid), .remote(remote), .slot_valid(slot_valid), .slot_place(slot_place),
        .slot_number(slot_number), .slot_size(slot_size), .free(free), .near(near), .grant(grant), .want(),
        .reads(reads)
    );

    integer p;
    always @*
        for (p = 0; p < PORTS; p = p + 1) begin
            free[p] = left[5*p+:5] == 5'd0;
            near[p] = left[5*p+:5] <= 5'd1;
        end

    integer one, at;
    always @* begin
        extra = 0;
        for (one = 0; one < SUBPARTITIONS; one = one + 1)
            for (at = 0; at < PORTS; at = at + 1)
                if (grant[one] && reads[(one*PORTS+at)*4+:4] > extra[4*one+:4] + 4'd1)
                    extra[4*one+:4] = reads[(one*PORTS+at)*4+:4] - 4'd1;
    end

    // Who shares a port reads no more of it than who took it, so the longest of the remote reads is what it was taken for.
    integer port, who;
    reg [4:0] longest, own, total;
    reg [PORTS*5-1:0] following;
    always @* begin
        following = 0;
        for (port = 0; port < PORTS; port = port + 1) begin
            longest = 5'd0;
            own = 5'd0;
            for (who = 0; who < SUBPARTITIONS; who = who + 1)
                if (grant[who])
                    if (!remote[who])
                        own = own | {1'b0, reads[(who*PORTS+port)*4+:4]};
                    else if ({1'b0, reads[(who*PORTS+port)*4+:4]} > longest)
                        longest = {1'b0, reads[(who*PORTS+port)*4+:4]};
            total = left[5*port+:5] + longest + own;
            following[5*port+:5] = (total == 5'd0) ? 5'd0 : total - 5'd1;
        end
    end

    always @(posedge clk)
        left <= reset ? {PORTS*5{1'b0}} : following;
endmodule
