// What the arbiter promises, for all requests and all ports that earlier cycles may still take. `x` and `y` are any two
// registers, `i` is any subpartition. Multicast: the taker of a port is the first granted remote request that needs
// it; others may share the registers that the taker reads.
module read_port_arbiter_proof #(
    parameter REGISTERS = 512,
    parameter SLOTS = 4
) (
    input wire clk
);
    localparam S = 4, BANKS = 2, PORTS = S * BANKS, INDEX = $clog2(REGISTERS);

    (* anyseq *) reg [1:0] start;
    (* anyseq *) reg [S-1:0] valid, remote;
    (* anyseq *) reg [S*SLOTS-1:0] slot_valid;
    (* anyseq *) reg [S*SLOTS*2-1:0] slot_place, slot_size;
    (* anyseq *) reg [S*SLOTS*INDEX-1:0] slot_number;
    (* anyconst *) reg [1+INDEX:0] x, y;
    (* anyconst *) reg [1:0] i;
    (* anyseq *) reg [PORTS-1:0] free, near;
    wire [S-1:0] grant;

    read_port_arbiter #(.REGISTERS(REGISTERS), .SLOTS(SLOTS)) unit (
        .start(start), .valid(valid), .remote(remote), .slot_valid(slot_valid), .slot_place(slot_place),
        .slot_number(slot_number), .slot_size(slot_size), .free(free), .near(near), .grant(grant), .want(), .reads()
    );
    always @*
        assume ((free & ~near) == 0);

    wire [S-1:0] asks_x, asks_y;
    wire [S*PORTS-1:0] ports;
    wire [S*PORTS*4-1:0] counts;
    genvar g;
    generate
        for (g = 0; g < S; g = g + 1) begin : requests
            wire [SLOTS-1:0] slots = slot_valid[SLOTS*g+:SLOTS];
            asked_registers #(.REGISTERS(REGISTERS), .SLOTS(SLOTS)) of_x (
                .slot_valid(slots), .slot_place(slot_place[SLOTS*2*g+:SLOTS*2]),
                .slot_number(slot_number[SLOTS*INDEX*g+:SLOTS*INDEX]), .slot_size(slot_size[SLOTS*2*g+:SLOTS*2]),
                .register(x), .asked(asks_x[g]), .ports(ports[PORTS*g+:PORTS]), .counts(counts[PORTS*4*g+:PORTS*4])
            );
            asked_registers #(.REGISTERS(REGISTERS), .SLOTS(SLOTS)) of_y (
                .slot_valid(slots), .slot_place(slot_place[SLOTS*2*g+:SLOTS*2]),
                .slot_number(slot_number[SLOTS*INDEX*g+:SLOTS*INDEX]), .slot_size(slot_size[SLOTS*2*g+:SLOTS*2]),
                .register(y), .asked(asks_y[g]), .ports(), .counts()
            );
            // A local request reads its own subpartition's registers.
            always @*
                assume (remote[g] || ports[PORTS*g+:PORTS] == (ports[PORTS*g+:PORTS] & (3 << BANKS * g)));
        end
    endgenerate

    // The port of x: who takes it, and who comes before whom.
    wire [2:0] at = {x[INDEX+:2], x[0]};
    wire on_one_port = at == {y[INDEX+:2], y[0]};
    integer turn, one;
    reg taken;                   // a remote request takes the port of x
    reg [1:0] taker;
    always @* begin
        taken = 0;
        taker = 0;
        for (turn = S - 1; turn >= 0; turn = turn - 1) begin
            one = (start + turn) % S;
            if (grant[one] && remote[one] && ports[PORTS*one+at]) begin
                taken = 1;
                taker = one;
            end
        end
    end
    wire [1:0] home = x[INDEX+:2];
    wire [1:0] turn_of_taker = taker - start, turn_of_home = home - start;

    // Whether nothing but this cycle's other requests is in i's way, and whether one of them is.
    integer q, other;
    reg clear, in_way;
    reg [1:0] turn_of_other;
    wire [1:0] my_turn = i - start;
    always @* begin
        clear = 1;
        in_way = 0;
        for (q = 0; q < PORTS; q = q + 1)
            if (ports[PORTS*i+q]) begin
                if (!(remote[i] ? free[q] : near[q]))
                    clear = 0;
                for (other = 0; other < S; other = other + 1) begin
                    turn_of_other = other - start;
                    if (grant[other] && turn_of_other < my_turn && ports[PORTS*other+q])
                        in_way = in_way | remote[i] | counts[4*(PORTS*other+q)+:4] > 1;
                end
            end
    end

    wire same = slot_valid[SLOTS*i+:SLOTS] == slot_valid[SLOTS*start+:SLOTS]
        && slot_place[SLOTS*2*i+:SLOTS*2] == slot_place[SLOTS*2*start+:SLOTS*2]
        && slot_number[SLOTS*INDEX*i+:SLOTS*INDEX] == slot_number[SLOTS*INDEX*start+:SLOTS*INDEX]
        && slot_size[SLOTS*2*i+:SLOTS*2] == slot_size[SLOTS*2*start+:SLOTS*2];

    always @* begin
        // Nobody reads unasked.
        assert ((grant & ~valid) == 0);
        // No clash: on a port that a remote request takes all remote ones read what the taker reads, and it was free.
        assert (!(grant[i] && remote[i] && asks_x[i]) || (taken && asks_x[taker] && free[at]));
        // All or none is in the same line: x is any register that the request asks for.
        // A local one comes behind one register at most, of the cycles before or of a taker before it.
        if (grant[home] && !remote[home] && asks_x[home]) begin
            assert (near[at]);
            assert (!taken || (turn_of_taker < turn_of_home && free[at]));
            assert (!(taken && asks_x[taker] && asks_y[taker] && on_one_port) || x == y);
        end
        // The head reads, if its ports are not taken by the cycles before; so somebody does.
        assert (!(valid[i] && clear && i == start) || grant[i]);
        assert (!(valid[i] && clear) || grant != 0);
        // Multicast: who asks for the same as a head that reads reads with it.
        assert (!(valid[i] && remote[i] && remote[start] && grant[start] && same) || grant[i]);
        // Who does not read, though the ports were free, has a granted one before it that needs one of its ports.
        assert (!(valid[i] && clear && !grant[i]) || in_way);
    end
endmodule
