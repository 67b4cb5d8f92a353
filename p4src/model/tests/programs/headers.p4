// Validity, copies of headers and structs, lists and records, stacks in a control.
//
//: # op 1: extra is a copy made of a list
//: send 1 01 00 0000 00000001 00000002
//: expect 1 01 00 0000 00000001 00000002 00000002 00000001
//: # op 2: a record, fields in any order
//: send 1 02 00 0000 00000001 00000002
//: expect 1 02 00 0000 00000001 00000002 00000001 00000002
//: # op 3: an invalid header is not emitted
//: send 1 03 00 0000 00000001 00000002 ff
//: expect 1 ff
//: # op 4: copying a header copies its validity
//: send 1 04 00 0000 00000001 00000002
//: expect 1 04 00 0000 00000001 00000002
//: # op 5: a list that names its target swaps
//: send 1 05 00 0000 00000001 00000002
//: expect 1 05 00 0000 00000001 00000002 00000002 00000001
//: # op 6: push_front makes room, the first is invalid
//: send 1 06 00 0000 00000001 00000002
//: expect 1 06 00 0000 00000001 00000002 00000006 00000001 00000002
//: # op 7: pop_front drops the first
//: send 1 07 00 0000 00000001 00000002
//: expect 1 07 00 0000 00000001 00000002 00000002

#include "common/types.p4"

header item_t { bit<32> v; }
struct headers_t { data_t data; extra_t extra; item_t[3] items; }
struct pair_t { bit<32> v; bit<32> w; }
struct metadata_t { pair_t pair; extra_t never; }

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    apply {
        ig_tm_md.ucast_egress_port = 1;
        if (hdr.data.op == 1) {
            hdr.extra = { hdr.data.b, hdr.data.a };
        } else if (hdr.data.op == 2) {
            hdr.extra = { w = hdr.data.b, v = hdr.data.a };
        } else if (hdr.data.op == 3) {
            hdr.data.setInvalid();
        } else if (hdr.data.op == 4) {
            hdr.extra.setValid();
            hdr.extra = meta.never;
        } else if (hdr.data.op == 5) {
            meta.pair = { hdr.data.a, hdr.data.b };
            meta.pair = { meta.pair.w, meta.pair.v };
            hdr.extra = { meta.pair.v, meta.pair.w };
        } else {
            hdr.items[0] = { hdr.data.a };
            hdr.items[1] = { hdr.data.b };
            if (hdr.data.op == 6) {
                hdr.items.push_front(1);
                if (!hdr.items[0].isValid()) {
                    hdr.items[0].setValid();
                    hdr.items[0].v = 6;
                }
            } else {
                hdr.items.pop_front(1);
            }
        }
    }
}

parser IngressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t ig_intr_md) {
    state start {
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
        pkt.extract(hdr.data);
        transition accept;
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        pkt.emit(hdr);
    }
}

#include "common/egress.p4"
