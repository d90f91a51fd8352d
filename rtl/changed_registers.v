// The registers of one subpartition that one of several changes names.
module changed_registers #(
    parameter SUBPARTITIONS = 4,
    parameter REGISTERS = 512,
    parameter SIZE = 3,
    parameter CHANGES = 4,
    parameter HOME = 0
) (
    input  wire [CHANGES-1:0]                       valid,
    input  wire [CHANGES*$clog2(SUBPARTITIONS)-1:0] place,
    input  wire [CHANGES*$clog2(REGISTERS)-1:0]     number,
    input  wire [CHANGES*SIZE-1:0]                  size,
    output reg  [REGISTERS-1:0]                     changed
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);

    wire [CHANGES*REGISTERS-1:0] hit;
    genvar c;
    generate
        for (c = 0; c < CHANGES; c = c + 1) begin : changes
            group_decode #(.REGISTERS(REGISTERS), .SIZE(SIZE)) decode (
                .valid(valid[c] && place[PLACE*c+:PLACE] == HOME[PLACE-1:0]), .number(number[INDEX*c+:INDEX]),
                .size(size[SIZE*c+:SIZE]), .hit(hit[REGISTERS*c+:REGISTERS])
            );
        end
    endgenerate

    integer k;
    always @* begin
        changed = 0;
        for (k = 0; k < CHANGES; k = k + 1)
            changed = changed | hit[REGISTERS*k+:REGISTERS];
    end
endmodule
