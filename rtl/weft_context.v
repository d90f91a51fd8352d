// Weft contexts of a FIBER-thread and its SET_FIBER_NUM. All live wefts wait at it (and, with ALL, the pool is at rest):
// in the next cycle (`fire`) all of them issue it together, those from `count` on are masked, and those below it that are
// not live start, unless they ended by EXIT. Then nobody issues while `hold` is set. Weft w has bit w.
module weft_context #(
    parameter SUBPARTITIONS = 4,
    parameter CONTEXTS = 64,     // of a subpartition
    parameter SYNC_CYCLES = 16   // from the last arrival to the next issue
) (
    input  wire                                       clk,
    input  wire                                       reset,
    input  wire                                       launch,    // weft 0 of a new FIBER-thread starts
    input  wire [$clog2(SUBPARTITIONS*CONTEXTS):0]    declared,  // wefts that its roles declare
    input  wire [SUBPARTITIONS*CONTEXTS-1:0]          waiting,   // at SET_FIBER_NUM, all it waits for is there
    input  wire [SUBPARTITIONS*CONTEXTS-1:0]          exiting,   // EXIT issues
    input  wire [$clog2(SUBPARTITIONS*CONTEXTS):0]    count,     // wefts from now on
    input  wire                                       all_scope,
    input  wire                                       at_rest,   // nothing is in flight on the pool
    output reg  [SUBPARTITIONS*CONTEXTS-1:0]          live,
    output reg  [SUBPARTITIONS*CONTEXTS-1:0]          masked,    // in this cycle
    output reg  [SUBPARTITIONS*CONTEXTS-1:0]          spawned,   // in this cycle
    output reg  [SUBPARTITIONS*CONTEXTS-1:0]          gone,      // ended by EXIT
    output reg                                        fire,
    output reg                                        fire_all,  // E of the pool is set, F cleared
    output wire                                       hold,
    output wire                                       ended
);
    localparam WEFTS = SUBPARTITIONS * CONTEXTS;
    localparam WAIT = (SYNC_CYCLES > 2) ? SYNC_CYCLES - 1 : 1;
    localparam WAIT_BITS = $clog2(WAIT + 1);

    reg [WAIT_BITS-1:0] left;
    assign hold = left != 0;
    assign ended = live == 0;

    reg [WEFTS-1:0] wanted, known;
    integer w;
    always @*
        for (w = 0; w < WEFTS; w = w + 1) begin
            wanted[w] = w < count;
            known[w] = w < declared;
        end

    wire [WEFTS-1:0] stay = live & ~exiting;
    wire [WEFTS-1:0] past = gone | (live & exiting);
    wire meet = (stay != 0) & ((stay & ~waiting) == 0) & (~all_scope | at_rest) & ~hold;

    always @(posedge clk)
        if (reset) begin
            live <= 0;
            gone <= 0;
            masked <= 0;
            spawned <= 0;
            fire <= 0;
            fire_all <= 0;
            left <= 0;
        end else if (launch) begin
            live <= 1;
            gone <= 0;
            masked <= 0;
            spawned <= 1;
            fire <= 0;
            fire_all <= 0;
            left <= 0;
        end else begin
            fire <= meet;
            fire_all <= meet & all_scope;
            masked <= meet ? stay & ~wanted : {WEFTS{1'b0}};
            spawned <= meet ? wanted & known & ~stay & ~past : {WEFTS{1'b0}};
            live <= meet ? (stay & wanted) | (wanted & known & ~past) : stay;
            gone <= past;
            left <= meet ? WAIT[WAIT_BITS-1:0] : (hold ? left - 1'b1 : left);
        end
endmodule
