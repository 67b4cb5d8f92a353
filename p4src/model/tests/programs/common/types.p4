// What the test programs share: a header of plain fields, in front of every packet.
// The parser takes it, the deparser gives it back, followed by `extra` where a test sets it valid.

#include <core.p4>
#include <tna.p4>

header data_t {
    bit<8> op;
    bit<8> x;
    bit<16> y;
    bit<32> a;
    bit<32> b;
}

header extra_t {
    bit<32> v;
    bit<32> w;
}
