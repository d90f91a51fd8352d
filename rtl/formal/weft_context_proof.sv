// What the weft contexts promise, for all inputs: no weft is lost, none starts twice or after its EXIT, and after a
// SET_FIBER_NUM exactly the declared wefts below the count that have not ended are live. `w` is any weft.
module weft_context_proof #(
    parameter CONTEXTS = 4
) (
    input wire clk
);
    localparam S = 4, WEFTS = S * CONTEXTS, BITS = $clog2(WEFTS);

    (* anyseq *) reg launch, all_scope, at_rest;
    (* anyseq *) reg [BITS:0] declared, count;
    (* anyseq *) reg [WEFTS-1:0] waiting, exiting;
    (* anyconst *) reg [BITS-1:0] w;
    wire [WEFTS-1:0] live, masked, spawned, gone_by_exit;
    wire fire, fire_all, hold, ended;
    reg reset = 1;
    always @(posedge clk)
        reset <= 0;

    weft_context #(.CONTEXTS(CONTEXTS), .SYNC_CYCLES(5)) contexts (
        .clk(clk), .reset(reset), .launch(launch), .declared(declared), .waiting(waiting), .exiting(exiting),
        .count(count), .all_scope(all_scope), .at_rest(at_rest), .live(live), .masked(masked), .spawned(spawned), .gone(gone_by_exit),
        .fire(fire), .fire_all(fire_all), .hold(hold), .ended(ended)
    );

    // What the weft did, kept beside: it has been live in this FIBER-thread, and has ended by EXIT.
    reg gone = 0, known = 0;
    reg was_live, was_waiting, was_exiting, was_all, was_rest, was_launch, below, all_there, was_hold, some;
    always @(posedge clk) begin
        known <= !reset;
        gone <= reset || launch ? 1'b0 : gone | (live[w] & exiting[w]);
        was_live <= live[w];
        was_waiting <= waiting[w];
        was_exiting <= exiting[w];
        was_all <= all_scope;
        was_rest <= at_rest;
        was_launch <= launch;
        was_hold <= hold;
        below <= w < count && w < declared;
        some <= (live & ~exiting) != 0;
        all_there <= (live & ~exiting & ~waiting) == 0;
    end

    always @*
        if (known) begin
            if (was_launch)
                assert (live == 1 && !fire);
            else begin
                // Nobody is lost: a live weft stays, but for EXIT or a SET_FIBER_NUM that does not name it.
                assert (!(was_live && !was_exiting && !live[w]) || (fire && masked[w]));
                assert (!masked[w] || (fire && was_live && !was_exiting && !live[w]));
                // Nobody appears but by SET_FIBER_NUM, none twice, none after its EXIT.
                assert (!(!was_live && live[w]) || (fire && spawned[w]));
                assert (!spawned[w] || (fire && !was_live && live[w] && below));
                // All were there, and the pool at rest where ALL asks for it; and then it does happen.
                assert (!fire || (all_there && some && !was_hold && (!was_all || was_rest)));
                assert (fire || !(all_there && some && !was_hold && (!was_all || was_rest)));
                assert (!fire || !was_live || was_exiting || was_waiting);
                assert (fire_all == (fire && was_all));
            end
            assert (!(gone && live[w]));
            // The count is right: below it all that have not ended, from it on nobody new.
            assert (!(fire && below) || live[w] || gone);
            assert (!(fire && spawned[w]) || below);
            assert (!fire || hold);
        end
    // The unit's own memory of EXIT agrees with ours, which makes the induction close.
    always @*
        if (known)
            assert (gone_by_exit[w] == gone);
endmodule
