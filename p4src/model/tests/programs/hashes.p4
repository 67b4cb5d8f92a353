// Hash functions over 01020304 05060708 (a, b); values computed elsewhere.
//
//: send 1 01 00 0000 01020304 05060708
//: expect 1 01 00 0000 01020304 05060708 3fca88c5 00000000
//: send 1 02 00 0000 01020304 05060708
//: expect 1 02 00 0000 01020304 05060708 46891f81 00000000
//: send 1 03 00 0000 01020304 05060708
//: expect 1 03 00 0000 01020304 05060708 0000c4f0 00000000
//: # the low 12 bits of CRC-32 over 4 + 8 bits, zero bits in front
//: send 1 04 ab 0005 01020304 05060708
//: expect 1 04 ab 0005 01020304 05060708 00000cda 00000000
//: # identity takes the low bits, xor folds
//: send 1 05 00 0000 01020304 05060708
//: expect 1 05 00 0000 01020304 05060708 00000708 00000000
//: send 1 06 00 0000 01020304 05060708
//: expect 1 06 00 0000 01020304 05060708 00000008 0404040c
//: # a polynomial given to a control as a constructor parameter
//: send 1 07 00 0000 01020304 05060708
//: expect 1 07 00 0000 01020304 05060708 46891f81 3fca88c5

#include "common/types.p4"

struct headers_t { data_t data; extra_t extra; }
struct metadata_t {}

control Hasher(in bit<32> p, in bit<32> q, out bit<32> h)(bit<32> coefficients) {
    CRCPolynomial<bit<32>>(coefficients, true, false, false, 0xffffffff, 0xffffffff) poly;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, poly) hash;
    apply {
        h = hash.get({ p, q });
    }
}

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    CRCPolynomial<bit<32>>(32w0x1EDC6F41, true, false, false, 32w0xFFFFFFFF, 32w0xFFFFFFFF) castagnoli;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) crc32;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, castagnoli) crc32c;
    Hash<bit<16>>(HashAlgorithm_t.CRC16) crc16;
    Hash<bit<12>>(HashAlgorithm_t.CRC32) low;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) identity;
    Hash<bit<16>>(HashAlgorithm_t.XOR16) xor16;
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor32;
    Hasher(0x1EDC6F41) first;
    Hasher(0x04C11DB7) second;

    apply {
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
        hdr.extra = { 0, 0 };
        if (hdr.data.op == 1) {
            hdr.extra.v = crc32.get({ hdr.data.a, hdr.data.b });
        } else if (hdr.data.op == 2) {
            hdr.extra.v = crc32c.get({ hdr.data.a, hdr.data.b });
        } else if (hdr.data.op == 3) {
            hdr.extra.v[15:0] = crc16.get({ hdr.data.a, hdr.data.b });
        } else if (hdr.data.op == 4) {
            hdr.extra.v = (bit<32>)low.get({ hdr.data.y[3:0], hdr.data.x });
        } else if (hdr.data.op == 5) {
            hdr.extra.v = (bit<32>)identity.get({ hdr.data.a, hdr.data.b });
        } else if (hdr.data.op == 6) {
            hdr.extra.v = (bit<32>)xor16.get({ hdr.data.a, hdr.data.b });
            hdr.extra.w = xor32.get({ hdr.data.a, hdr.data.b });
        } else if (hdr.data.op == 7) {
            first.apply(hdr.data.a, hdr.data.b, hdr.extra.v);
            second.apply(hdr.data.a, hdr.data.b, hdr.extra.w);
        }
    }
}

#include "common/ingress_edges.p4"
#include "common/egress.p4"
