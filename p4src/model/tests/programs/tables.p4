// Match kinds, priorities, entries in the program, defaults, hit, miss and action_run.
// `op` chooses the table; the chosen action writes its data into b.
//
//: # exact, two fields
//: send 1 01 05 0006 00000000 00000000
//: expect 1 01 05 0006 00000000 ffffffff
//: add exact_table hdr.data.x=5 hdr.data.y=6 -> set value=0x11
//: send 1 01 05 0006 00000000 00000000
//: expect 1 01 05 0006 00000000 00000011
//: modify exact_table hdr.data.x=5 hdr.data.y=6 -> set value=0x12
//: send 1 01 05 0006 00000000 00000000
//: expect 1 01 05 0006 00000000 00000012
//: delete exact_table hdr.data.x=5 hdr.data.y=6
//: send 1 01 05 0006 00000000 00000000
//: expect 1 01 05 0006 00000000 ffffffff
//: default exact_table set value=7
//: send 1 01 05 0006 00000000 00000000
//: expect 1 01 05 0006 00000000 00000007
//: # ternary: the lower priority number wins, whatever the order of adding
//: add ternary_table hdr.data.a=0x0a000000&&&0xff000000 @20 -> set value=1
//: add ternary_table hdr.data.a=0x0a010000&&&0xffff0000 @10 -> set value=2
//: send 1 02 00 0000 0a010203 00000000
//: expect 1 02 00 0000 0a010203 00000002
//: send 1 02 00 0000 0a020203 00000000
//: expect 1 02 00 0000 0a020203 00000001
//: delete ternary_table hdr.data.a=0x0a010000&&&0xffff0000 @10
//: send 1 02 00 0000 0a010203 00000000
//: expect 1 02 00 0000 0a010203 00000001
//: # longest prefix, with an exact field beside it
//: add lpm_table hdr.data.x=1 hdr.data.a=0x0a000000/8 -> set value=8
//: add lpm_table hdr.data.x=1 hdr.data.a=0x0a0b0000/16 -> set value=16
//: add lpm_table hdr.data.x=1 hdr.data.a=0/0 -> set value=99
//: send 1 03 01 0000 0a0b0c0d 00000000
//: expect 1 03 01 0000 0a0b0c0d 00000010
//: send 1 03 01 0000 0a0c0c0d 00000000
//: expect 1 03 01 0000 0a0c0c0d 00000008
//: send 1 03 01 0000 0b0c0c0d 00000000
//: expect 1 03 01 0000 0b0c0c0d 00000063
//: send 1 03 02 0000 0a0b0c0d 00000000
//: expect 1 03 02 0000 0a0b0c0d 00000000
//: # const entries: ranges, the first that matches
//: send 1 04 00 0063 00000000 00000000
//: expect 1 04 00 0063 00000000 00000001
//: send 1 04 00 0064 00000000 00000000
//: expect 1 04 00 0064 00000000 00000002
//: send 1 04 00 ffff 00000000 00000000
//: expect 1 04 00 ffff 00000000 00000003
//: # hit and miss
//: send 1 05 01 0000 00000000 00000000
//: expect 1 05 01 0000 00000001 00000002
//: send 1 05 02 0000 00000000 00000000
//: expect 1 05 02 0000 00000000 00000001
//: # a direct counter counts where the action says so
//: entries counted 0
//: add counted hdr.data.x=1 -> counts
//: add counted hdr.data.x=2 -> clear
//: send 1 07 01 0000 00000000 00000009
//: expect 1 07 01 0000 00000000 00000009
//: send 1 07 02 0000 00000000 00000009
//: expect 1 07 02 0000 00000000 00000000
//: entries counted 1
//: # action_run
//: send 1 06 01 0000 00000000 00000000
//: expect 1 06 01 0000 000000aa 00000002
//: send 1 06 02 0000 00000000 00000000
//: expect 1 06 02 0000 000000bb 00000000

#include "common/types.p4"

struct headers_t { data_t data; extra_t extra; }
struct metadata_t {}

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    action set(bit<32> value) { hdr.data.b = value; }
    action clear() { hdr.data.b = 0; }

    table exact_table {
        key = { hdr.data.x : exact; hdr.data.y : exact; }
        actions = { set; clear; }
        default_action = set(0xffffffff);
        size = 16;
    }
    table ternary_table {
        key = { hdr.data.a : ternary; }
        actions = { set; }
        size = 16;
    }
    table lpm_table {
        key = { hdr.data.x : exact; hdr.data.a : lpm; }
        actions = { set; @defaultonly clear; }
        const default_action = clear;
        size = 16;
    }
    table range_table {
        key = { hdr.data.y : range; }
        actions = { set; }
        const entries = {
            0 .. 99 : set(1);
            100 : set(2);
            _ : set(3);
        }
    }
    table small_table {
        key = { hdr.data.x : exact; }
        actions = { set; clear; }
        const entries = { 1 : set(2); }
        default_action = clear;
    }

    DirectCounter<bit<32>>(CounterType_t.PACKETS) hits;
    action counts() { hits.count(); }
    table counted {
        key = { hdr.data.x : exact; }
        actions = { counts; clear; @defaultonly NoAction; }
        const default_action = NoAction;
        counters = hits;
        size = 4;
    }

    apply {
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
        if (hdr.data.op == 1) {
            exact_table.apply();
        } else if (hdr.data.op == 2) {
            ternary_table.apply();
        } else if (hdr.data.op == 3) {
            lpm_table.apply();
        } else if (hdr.data.op == 4) {
            range_table.apply();
        } else if (hdr.data.op == 5) {
            if (small_table.apply().hit) {
                hdr.data.a = 1;
            } else {
                hdr.data.b = 1;
            }
        } else if (hdr.data.op == 6) {
            switch (small_table.apply().action_run) {
                set: { hdr.data.a = 0xaa; }
                clear: { hdr.data.a = 0xbb; }
            }
        } else if (hdr.data.op == 7) {
            counted.apply();
        }
    }
}

#include "common/ingress_edges.p4"
#include "common/egress.p4"
