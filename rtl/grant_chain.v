// Grants for one order of the requesters: FIRST, FIRST + 1, ... A remote request has all of its ports or none: each
// free and not taken by an earlier one, or given by an earlier remote one that reads all the registers wanted there. A
// local one reads its own ports, behind at most one register that is read already.
module grant_chain #(
    parameter REQUESTERS = 4,
    parameter PORTS = 8,
    parameter FIRST = 0
) (
    input  wire [REQUESTERS-1:0]                  valid,
    input  wire [REQUESTERS-1:0]                  remote,
    input  wire [REQUESTERS*PORTS-1:0]            want,
    input  wire [REQUESTERS*PORTS-1:0]            heavy,
    input  wire [REQUESTERS*REQUESTERS*PORTS-1:0] uncovered,  // [later][earlier][port]
    input  wire [PORTS-1:0]                       free,
    input  wire [PORTS-1:0]                       near,
    output reg  [REQUESTERS-1:0]                  grant
);
    integer turn, earlier, one, two;
    reg [PORTS-1:0] taken, taken_long, given;
    reg every, own;
    always @* begin
        grant = 0;
        taken = 0;
        taken_long = 0;
        for (turn = 0; turn < REQUESTERS; turn = turn + 1) begin
            one = (FIRST + turn) % REQUESTERS;
            given = 0;
            for (earlier = 0; earlier < turn; earlier = earlier + 1) begin
                two = (FIRST + earlier) % REQUESTERS;
                if (grant[two] && remote[two])
                    given = given | ~uncovered[(one*REQUESTERS+two)*PORTS+:PORTS];
            end
            every = &(~want[one*PORTS+:PORTS] | (free & ~taken) | given);
            own = &(~want[one*PORTS+:PORTS] | (near & ~taken_long));
            grant[one] = valid[one] & (remote[one] ? every : own);
            if (grant[one]) begin
                taken = taken | want[one*PORTS+:PORTS];
                taken_long = taken_long | heavy[one*PORTS+:PORTS];
            end
        end
    end
endmodule
