// Registers and register actions: what the sketches are made of.
//
//: # op 1: 8-bit saturating counter that reports its new value
//: send 1 01 02 0000 00000000 00000000
//: expect 1 01 02 0000 00000000 00000001
//: write small 2 = 254
//: send 1 01 02 0000 00000000 00000000
//: expect 1 01 02 0000 00000000 000000ff
//: send 1 01 02 0000 00000000 00000000
//: expect 1 01 02 0000 00000000 000000ff
//: register small 2 = 255
//: # op 2: a pair; the old second value comes back
//: send 1 02 01 0000 00000005 00000007
//: expect 1 02 01 0000 00000005 00000064
//: register pair 1 = 15 107
//: send 1 02 01 0000 00000005 00000007
//: expect 1 02 01 0000 00000005 0000006b
//: register pair 1 = 20 114
//: # op 3: addition modulo the prime 4294967291: a is the fragment, b is p - a
//: write sum 0 = 4294967290
//: send 1 03 00 0000 00000003 fffffff8
//: expect 1 03 00 0000 00000003 00000002
//: send 1 03 00 0000 00000003 fffffff8
//: expect 1 03 00 0000 00000003 00000005
//: # op 4: read and clear
//: write sum 5 = 77
//: send 1 04 05 0000 00000000 00000000
//: expect 1 04 05 0000 00000000 0000004d
//: register sum 5 = 0
//: # op 5: the initial value stands in the program
//: send 1 05 00 0000 00000000 00000000
//: expect 1 05 00 0000 00000000 00000007
//: # op 6: two conditions: count only between the bounds a and b (exclusive)
//: send 1 06 00 0000 00000000 00000002
//: expect 1 06 00 0000 00000000 00000000
//: write window 0 = 1
//: send 1 06 00 0000 00000000 00000002
//: expect 1 06 00 0000 00000000 00000002
//: send 1 06 00 0000 00000000 00000002
//: expect 1 06 00 0000 00000000 00000000
//: register window 0 = 2
//: # op 7: a bit
//: send 1 07 03 0000 00000000 00000000
//: expect 1 07 03 0000 00000000 00000000
//: send 1 07 03 0000 00000000 00000000
//: expect 1 07 03 0000 00000000 00000001
//: # op 8: an action of a table runs the register
//: add bump hdr.data.x=9 -> hit_it by=4
//: send 1 08 09 0000 00000000 00000000
//: expect 1 08 09 0000 00000000 00000004
//: send 1 08 09 0000 00000000 00000000
//: expect 1 08 09 0000 00000000 00000008
//: # an element that does not exist: nothing happens, the result is 0
//: send 1 01 ff 0000 00000000 00000063
//: expect 1 01 ff 0000 00000000 00000000

#include "common/types.p4"

struct headers_t { data_t data; extra_t extra; }
struct metadata_t {}
struct pair_t { bit<32> first; bit<32> second; }

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Register<bit<8>, bit<8>>(16, 0) small;
    RegisterAction<bit<8>, bit<8>, bit<8>>(small) count_small = {
        void apply(inout bit<8> value, out bit<8> rv) {
            value = value |+| 1;
            rv = value;
        }
    };

    Register<pair_t, bit<8>>(4, { 10, 100 }) pair;
    RegisterAction<pair_t, bit<8>, bit<32>>(pair) add_pair = {
        void apply(inout pair_t value, out bit<32> rv) {
            rv = value.second;
            value.first = value.first + hdr.data.a;
            value.second = value.second + hdr.data.b;
        }
    };

    Register<bit<32>, bit<8>>(16) sum;
    RegisterAction<bit<32>, bit<8>, bit<32>>(sum) add_modulo = {
        void apply(inout bit<32> value, out bit<32> rv) {
            if (value >= hdr.data.b) {
                value = value - hdr.data.b;
            } else {
                value = value + hdr.data.a;
            }
            rv = value;
        }
    };
    RegisterAction<bit<32>, bit<8>, bit<32>>(sum) take = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            value = 0;
        }
    };

    Register<bit<32>, bit<8>>(1, 7) seven;
    RegisterAction<bit<32>, bit<8>, bit<32>>(seven) read_seven = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
        }
    };

    Register<bit<32>, bit<8>>(1) window;
    RegisterAction<bit<32>, bit<8>, bit<32>>(window) count_window = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = 0;
            if (value > hdr.data.a && value < hdr.data.b) {
                value = value + 1;
                rv = value;
            }
        }
    };

    Register<bit<1>, bit<8>>(8) seen;
    RegisterAction<bit<1>, bit<8>, bit<1>>(seen) test_and_set = {
        void apply(inout bit<1> value, out bit<1> rv) {
            rv = value;
            value = 1;
        }
    };

    Register<bit<32>, bit<8>>(16) by_table;
    bit<32> step = 0;
    RegisterAction<bit<32>, bit<8>, bit<32>>(by_table) add_step = {
        void apply(inout bit<32> value, out bit<32> rv) {
            value = value + step;
            rv = value;
        }
    };
    action hit_it(bit<32> by) {
        step = by;
        hdr.data.b = add_step.execute(hdr.data.x);
    }
    table bump {
        key = { hdr.data.x : exact; }
        actions = { hit_it; }
        size = 4;
    }

    apply {
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
        if (hdr.data.op == 1) {
            hdr.data.b = (bit<32>)count_small.execute(hdr.data.x);
        } else if (hdr.data.op == 2) {
            hdr.data.b = add_pair.execute(hdr.data.x);
        } else if (hdr.data.op == 3) {
            hdr.data.b = add_modulo.execute(hdr.data.x);
        } else if (hdr.data.op == 4) {
            hdr.data.b = take.execute(hdr.data.x);
        } else if (hdr.data.op == 5) {
            hdr.data.b = read_seven.execute(0);
        } else if (hdr.data.op == 6) {
            hdr.data.b = count_window.execute(0);
        } else if (hdr.data.op == 7) {
            hdr.data.b = (bit<32>)test_and_set.execute(hdr.data.x);
        } else if (hdr.data.op == 8) {
            bump.apply();
        }
    }
}

#include "common/ingress_edges.p4"
#include "common/egress.p4"
