// Controls within controls: constructor parameters, instances with registers of their own,
// parameters by place and by value, the same instance applied twice.
//
//: # first counts at index x, second at index 2x; each has its own register
//: send 1 01 03 0000 00000000 00000000
//: expect 1 01 03 0000 00000001 00000001
//: send 1 01 03 0000 00000000 00000000
//: expect 1 01 03 0000 00000002 00000002
//: register first.cells 3 = 2
//: register second.cells 6 = 2
//: register first.cells 6 = 0
//: # the adder adds its constructor's constant; applied twice with the same arguments
//: send 1 02 00 0000 00000001 00000002
//: expect 1 02 00 0000 00000001 00000016
//: # a table in a nested control has the instance's name
//: add Ingress.outer.inner.pick v=9 -> set to=0x77
//: send 1 03 00 0000 00000009 00000000
//: expect 1 03 00 0000 00000009 00000077
//: # the same field as in and out argument: copied, so the callee sees the old value
//: send 1 04 00 0000 00000005 00000000
//: expect 1 04 00 0000 0000000c 00000000

#include "common/types.p4"

struct headers_t { data_t data; extra_t extra; }
struct metadata_t {}

control Cells(in bit<8> index, out bit<32> seen)(bit<32> size, bit<8> factor) {
    Register<bit<32>, bit<8>>(size) cells;
    RegisterAction<bit<32>, bit<8>, bit<32>>(cells) bump = {
        void apply(inout bit<32> value, out bit<32> rv) {
            value = value + 1;
            rv = value;
        }
    };
    bit<8> place = 0;
    apply {
        place = index;
        if (factor == 2) {
            place = index << 1;
        }
        seen = bump.execute(place);
    }
}

control Adder(inout bit<32> v)(bit<32> by) {
    apply {
        v = v + by;
    }
}

control Inner(in bit<32> v, inout bit<32> r) {
    action set(bit<32> to) { r = to; }
    table pick {
        key = { v : exact; }
        actions = { set; NoAction; }
        default_action = NoAction;
        size = 4;
    }
    apply { pick.apply(); }
}

control Outer(in bit<32> v, inout bit<32> r) {
    Inner() inner;
    apply { inner.apply(v, r); }
}

control AddTo(in bit<32> old, out bit<32> fresh) {
    apply {
        fresh = 2;
        fresh = fresh + old + old;
    }
}

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Cells(16, 1) first;
    Cells(16, 2) second;
    Adder(10) adder;
    Outer() outer;

    apply {
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
        if (hdr.data.op == 1) {
            first.apply(hdr.data.x, hdr.data.a);
            second.apply(hdr.data.x, hdr.data.b);
        } else if (hdr.data.op == 2) {
            adder.apply(hdr.data.b);
            adder.apply(hdr.data.b);
        } else if (hdr.data.op == 3) {
            outer.apply(hdr.data.a, hdr.data.b);
        } else if (hdr.data.op == 4) {
            AddTo.apply(hdr.data.a, hdr.data.a);
        }
    }
}

#include "common/ingress_edges.p4"
#include "common/egress.p4"
