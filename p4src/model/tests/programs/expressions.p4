// Slices, concatenation, casts, conditional expressions, enums and short circuits.
//
//: # b = a[7:0] ++ a[31:8]
//: send 1 01 00 0000 12345678 00000000
//: expect 1 01 00 0000 12345678 78123456
//: # a slice of a slice is assigned: a[31:16][7:0] = x
//: send 1 02 ab 0000 12345678 00000000
//: expect 1 02 ab 0000 12ab5678 00000000
//: # zero extension, truncation, sign extension
//: send 1 03 80 1234 00000000 00000000
//: expect 1 03 80 1234 00003480 ffffff80
//: # c ? x : y
//: send 1 04 00 0001 0000000a 0000000b
//: expect 1 04 00 0001 0000000a 0000000a
//: send 1 04 00 0000 0000000a 0000000b
//: expect 1 04 00 0000 0000000a 0000000b
//: # enum with values: x == BIG makes y its number
//: send 1 05 07 0000 00000000 00000000
//: expect 1 05 07 0007 00000000 00000000
//: send 1 05 08 0000 00000000 00000000
//: expect 1 05 08 ffff 00000000 00000000
//: # && and || and !
//: send 1 06 01 0001 00000000 00000000
//: expect 1 06 01 0001 00000000 00000003
//: send 1 06 00 0001 00000000 00000000
//: expect 1 06 00 0001 00000000 00000002
//: send 1 06 00 0000 00000000 00000000
//: expect 1 06 00 0000 00000000 00000004
//: # bool and bit<1>
//: send 1 07 01 0000 00000000 00000000
//: expect 1 07 01 0000 00000001 00000000
//: # 128 bits
//: send 1 08 00 0000 00000005 00000009
//: expect 1 08 00 0000 00000009 00000005

#include "common/types.p4"

struct headers_t { data_t data; extra_t extra; }
struct metadata_t { bit<128> wide; }

enum bit<8> size_t { SMALL = 1, BIG = 7 }

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    apply {
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
        if (hdr.data.op == 1) {
            hdr.data.b = hdr.data.a[7:0] ++ hdr.data.a[31:8];
        } else if (hdr.data.op == 2) {
            hdr.data.a[31:16][7:0] = hdr.data.x;
        } else if (hdr.data.op == 3) {
            hdr.data.a = (bit<32>)(hdr.data.y[7:0] ++ hdr.data.x);
            hdr.data.b = (bit<32>)(int<32>)(int<8>)hdr.data.x;
        } else if (hdr.data.op == 4) {
            hdr.data.b = hdr.data.y == 1 ? hdr.data.a : hdr.data.b;
        } else if (hdr.data.op == 5) {
            if ((size_t)hdr.data.x == size_t.BIG) {
                hdr.data.y = (bit<16>)(bit<8>)size_t.BIG;
            } else {
                hdr.data.y = -1;
            }
        } else if (hdr.data.op == 6) {
            bool p = hdr.data.x == 1;
            bool q = hdr.data.y == 1;
            hdr.data.b = 0;
            if (p && q) { hdr.data.b = hdr.data.b | 1; }
            if (p || q) { hdr.data.b = hdr.data.b | 2; }
            if (!(p || q)) { hdr.data.b = hdr.data.b | 4; }
        } else if (hdr.data.op == 7) {
            bool flag = (bool)hdr.data.x[0:0];
            hdr.data.a = 31w0 ++ (bit<1>)flag;
        } else if (hdr.data.op == 8) {
            meta.wide = hdr.data.a ++ 64w0xffffffffffffffff ++ hdr.data.b;
            meta.wide = meta.wide & 128w0xffffffff00000000ffffffffffffffff;
            hdr.data.b = meta.wide[127:96];
            hdr.data.a = meta.wide[31:0];
            if (meta.wide[95:64] != 0) { hdr.data.a = 0; }
        }
    }
}

#include "common/ingress_edges.p4"
#include "common/egress.p4"
