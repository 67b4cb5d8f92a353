// Actions and functions: directions, copies in and out, return, exit.
//
//: # inout and out parameters, arguments with a slice
//: send 1 01 05 1234 00000001 00000002
//: expect 1 01 05 3412 00000001 00000003
//: # a function, and return in the middle of it
//: send 1 02 05 0000 00000001 00000002
//: expect 1 02 05 0000 00000001 0000000a
//: send 1 02 50 0000 00000001 00000002
//: expect 1 02 50 0000 00000001 00000050
//: # return leaves the action, not the control
//: send 1 03 00 0000 00000001 00000002
//: expect 1 03 00 0000 00000001 0000000b
//: # exit leaves everything
//: send 1 04 00 0000 00000001 00000002
//: expect 1 04 00 0000 00000001 000000ee
//: # exit in an action that a condition runs leaves the control as well
//: add chooser hdr.data.x=1 -> leave
//: send 1 06 01 0000 00000001 00000002
//: expect 1 06 01 0000 00000001 000000ee
//: send 1 06 02 0000 00000001 00000002
//: expect 1 06 02 0000 00000001 00000063
//: # an in parameter is a copy: writing the argument does not change it
//: send 1 05 00 0000 00000001 00000002
//: expect 1 05 00 0000 00000063 00000001

#include "common/types.p4"

struct headers_t { data_t data; extra_t extra; }
struct metadata_t {}

bit<32> twice_or_same(in bit<8> v) {
    if (v < 16) {
        return (bit<32>)(v + v);
    }
    return (bit<32>)v;
}

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    action swap(inout bit<8> p, inout bit<8> q) {
        bit<8> t = p;
        p = q;
        q = t;
    }
    action sum(in bit<32> p, in bit<32> q, out bit<32> s) { s = p + q; }
    action early() {
        hdr.data.b = 10;
        return;
        hdr.data.b = 11;
    }
    action leave() {
        hdr.data.b = 0xee;
        exit;
    }
    action keep(in bit<32> before) {
        hdr.data.a = 0x63;
        hdr.data.b = before;
    }

    table chooser {
        key = { hdr.data.x : exact; }
        actions = { leave; NoAction; }
        const default_action = NoAction;
        size = 2;
    }

    apply {
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
        if (hdr.data.op == 1) {
            swap(hdr.data.y[7:0], hdr.data.y[15:8]);
            sum(hdr.data.a, hdr.data.b, hdr.data.b);
        } else if (hdr.data.op == 2) {
            hdr.data.b = twice_or_same(hdr.data.x);
        } else if (hdr.data.op == 3) {
            early();
            hdr.data.b = hdr.data.b + 1;
        } else if (hdr.data.op == 4) {
            leave();
            hdr.data.b = 0;
        } else if (hdr.data.op == 5) {
            keep(hdr.data.a);
        } else if (hdr.data.op == 6) {
            if (hdr.data.y == 0 && !chooser.apply().hit) {
                hdr.data.b = 0x62;
            }
            hdr.data.b = hdr.data.b + 1;
        }
    }
}

#include "common/ingress_edges.p4"
#include "common/egress.p4"
