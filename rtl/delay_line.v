// What goes in comes out DELAY cycles later.
module delay_line #(
    parameter WIDTH = 1,
    parameter DELAY = 1
) (
    input  wire             clk,
    input  wire             reset,
    input  wire [WIDTH-1:0] in,
    output wire [WIDTH-1:0] out
);
    generate
        if (DELAY == 0) begin : none
            assign out = in;
        end else begin : some
            reg [WIDTH*DELAY-1:0] stages;
            always @(posedge clk)
                if (reset)
                    stages <= 0;
                else
                    stages <= stages << WIDTH | {{WIDTH*(DELAY-1){1'b0}}, in};
            assign out = stages[WIDTH*(DELAY-1)+:WIDTH];
        end
    endgenerate
endmodule
