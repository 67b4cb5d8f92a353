// Operators on bit<W> and int<W>. `op` chooses; the result comes back in b.
//
//: # add wraps
//: send 1 01 00 0000 fffffffe 00000003
//: expect 1 01 00 0000 fffffffe 00000001
//: # subtract wraps
//: send 1 02 00 0000 00000001 00000003
//: expect 1 02 00 0000 00000001 fffffffe
//: # saturating add and subtract
//: send 1 03 00 0000 fffffffe 00000003
//: expect 1 03 00 0000 fffffffe ffffffff
//: send 1 04 00 0000 00000001 00000003
//: expect 1 04 00 0000 00000001 00000000
//: # and, or, xor, complement, minus
//: send 1 05 00 0000 0ff00ff0 00ffff00
//: expect 1 05 00 0000 0ff00ff0 00f00f00
//: send 1 06 00 0000 0ff00ff0 00ffff00
//: expect 1 06 00 0000 0ff00ff0 0ffffff0
//: send 1 07 00 0000 0ff00ff0 00ffff00
//: expect 1 07 00 0000 0ff00ff0 0f0ff0f0
//: send 1 08 00 0000 0ff00ff0 00000000
//: expect 1 08 00 0000 0ff00ff0 f00ff00f
//: send 1 09 00 0000 00000001 00000000
//: expect 1 09 00 0000 00000001 ffffffff
//: # shifts by a field; past the width nothing is left
//: send 1 0a 04 0000 0ff00ff1 00000000
//: expect 1 0a 04 0000 0ff00ff1 ff00ff10
//: send 1 0b 04 0000 ff00ff10 00000000
//: expect 1 0b 04 0000 ff00ff10 0ff00ff1
//: send 1 0b 20 0000 ff00ff10 00000000
//: expect 1 0b 20 0000 ff00ff10 00000000
//: # arithmetic shift of a signed value
//: send 1 0c 04 0000 f0000000 00000000
//: expect 1 0c 04 0000 f0000000 ff000000
//: # signed comparison: -1 < 1
//: send 1 0d 00 0000 ffffffff 00000001
//: expect 1 0d 00 0000 ffffffff 00000001
//: # unsigned comparison: not 0xffffffff < 1
//: send 1 0e 00 0000 ffffffff 00000001
//: expect 1 0e 00 0000 ffffffff 00000000
//: # signed saturation stops at 127 and at -128
//: send 1 0f 64 0064 00000000 00000000
//: expect 1 0f 64 0064 00000000 0000007f
//: send 1 0f 80 0080 00000000 00000000
//: expect 1 0f 80 0080 00000000 00000080
//: # min and max
//: send 1 10 00 0000 00000007 00000009
//: expect 1 10 00 0000 00000007 00000007
//: send 1 11 00 0000 00000007 00000009
//: expect 1 11 00 0000 00000007 00000009

#include "common/types.p4"

struct headers_t { data_t data; extra_t extra; }
struct metadata_t {}

const bit<32> ONE = 1;
const int SIX = 2 * 3;

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    apply {
        bit<32> a = hdr.data.a;
        bit<32> b = hdr.data.b;
        bit<32> r = 0;
        if (hdr.data.op == 1) {
            r = a + b;
        } else if (hdr.data.op == 2) {
            r = a - b;
        } else if (hdr.data.op == 3) {
            r = a |+| b;
        } else if (hdr.data.op == 4) {
            r = a |-| b;
        } else if (hdr.data.op == 5) {
            r = a & b;
        } else if (hdr.data.op == SIX) {
            r = a | b;
        } else if (hdr.data.op == 7) {
            r = a ^ b;
        } else if (hdr.data.op == 8) {
            r = ~a;
        } else if (hdr.data.op == 9) {
            r = -a;
        } else if (hdr.data.op == 10) {
            r = a << hdr.data.x;
        } else if (hdr.data.op == 11) {
            r = a >> hdr.data.x;
        } else if (hdr.data.op == 12) {
            r = (bit<32>)((int<32>)a >> hdr.data.x);
        } else if (hdr.data.op == 13) {
            if ((int<32>)a < (int<32>)b) { r = ONE; }
        } else if (hdr.data.op == 14) {
            if (a < b) { r = ONE; }
        } else if (hdr.data.op == 15) {
            int<8> sum = (int<8>)hdr.data.x |+| (int<8>)hdr.data.y[7:0];
            r = (bit<32>)(bit<8>)sum;
        } else if (hdr.data.op == 16) {
            r = min(a, b);
        } else if (hdr.data.op == 17) {
            r = max(a, b);
        }
        hdr.data.b = r;
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
    }
}

#include "common/ingress_edges.p4"
#include "common/egress.p4"
