// Decode extension of a subpartition: the registers that an instruction's source slots and destination mean.
// fields = bits 104:92 of the word: A 94:92, B 97:95, C 100:98 (selector, high bit), D 103:101, X 104. Where the
// instruction has no slot D, 101, 102 and 103 are local flags of A, B and C. A number is relative to the FIBER-thread's
// allocation in its subpartition, which is added here; `overflow` says that the sum is no register.
module decode_extension #(
    parameter SUBPARTITIONS = 4,
    parameter REGISTERS = 512  // of a subpartition
) (
    input  wire [12:0]                                       fields,
    input  wire [3:0]                                        has,        // slot A is bit 0
    input  wire [31:0]                                       low,        // 8-bit register fields, slot A first
    input  wire                                              a_is_local, // bit 101 has another meaning
    input  wire                                              has_destination,
    input  wire [7:0]                                        destination,
    input  wire [$clog2(SUBPARTITIONS)-1:0]                  own,        // the weft's subpartition
    input  wire [$clog2(REGISTERS)-1:0]                      base,       // the weft's window
    input  wire [SUBPARTITIONS*($clog2(REGISTERS)-2)-1:0]    allocation, // first register in each subpartition / 4
    output wire                                              remote,     // an X instruction: the arbiter decides
    output wire [3:0]                                        slot_valid,
    output wire [4*$clog2(SUBPARTITIONS)-1:0]                slot_place,
    output wire [4*$clog2(REGISTERS)-1:0]                    slot_number,
    output wire                                              destination_valid,
    output wire [$clog2(REGISTERS)-1:0]                      destination_number,
    output wire                                              overflow
);
    localparam PLACE = $clog2(SUBPARTITIONS);
    localparam INDEX = $clog2(REGISTERS);
    localparam ALLOCATION = INDEX - 2;
    localparam [7:0] RZ = 8'd255;

    wire x = fields[12];
    wire [3:0] over;
    wire [3:0] zero, named;
    genvar s;
    generate
        for (s = 0; s < 4; s = s + 1) begin : slots
            wire high = fields[3*s+2];
            wire [7:0] field = low[8*s+:8];
            wire flag = (s < 3) & ~has[3] & fields[9 + (s % 3)] & ~((s == 0) & a_is_local);
            wire local_place = ~x | flag | ((s == 0) & a_is_local);
            assign zero[s] = (field == RZ) & ~(x & high);
            assign named[s] = has[s] & ~zero[s];
            wire [PLACE-1:0] place = local_place ? own : fields[3*s+:PLACE];
            wire [INDEX:0] relative = x ? {{INDEX-8{1'b0}}, high, field} : {1'b0, base} + {{INDEX-7{1'b0}}, field};
            wire [INDEX:0] number = relative + {1'b0, allocation[ALLOCATION*place+:ALLOCATION], 2'b0};
            assign over[s] = named[s] & number[INDEX];
            assign slot_valid[s] = named[s];
            assign slot_place[PLACE*s+:PLACE] = place;
            assign slot_number[INDEX*s+:INDEX] = number[INDEX-1:0];
        end
    endgenerate

    wire [INDEX:0] written =
        {1'b0, base} + {{INDEX-7{1'b0}}, destination} + {1'b0, allocation[ALLOCATION*own+:ALLOCATION], 2'b0};
    assign remote = x;
    assign destination_valid = has_destination & (destination != RZ);
    assign destination_number = written[INDEX-1:0];
    assign overflow = (|over) | (destination_valid & written[INDEX]);
endmodule
