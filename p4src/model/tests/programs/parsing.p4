// Parsers: select with masks, ranges and lists, lookahead, a stack of tags, a sub-parser, a value
// set, states without transition. Layout: kind(1), then what `kind` says.
//
//: # kind 1: up to two tags (1 byte flag "more", 1 byte value), then accept
//: send 1 01 01 aa 00 bb
//: expect 1 f1 01 01 aa 00 bb 00000002 000000bb
//: send 1 01 00 cc
//: expect 1 f1 01 00 cc 00000001 000000cc
//: # three tags overflow the stack: parser error, which this control reads
//: send 1 01 01 aa 01 bb 00 cc
//: expect 1 ee 0040 01 01 aa 01 bb 00 cc
//: # kind 0x20-0x2f by mask: lookahead of 16 bits
//: send 1 25 beef
//: expect 1 f2 25 0000beef beef
//: # kind 0x30 .. 0x3f by range, and a second value
//: send 1 31 07
//: expect 1 f3 31 07
//: send 1 31 08
//: expect 1 f4 31 08
//: # the value set
//: send 1 77
//: expect 1 ee 0001 77
//: set kinds 77
//: send 1 77
//: expect 1 f5 77
//: # a truncated header
//: send 1 01 00
//: expect 1 ee 0002 01 00

#include <core.p4>
#include <tna.p4>

header kind_t { bit<8> kind; }
header tag_t { bit<8> more; bit<8> value; }
header peek_t { bit<16> v; }
header mark_t { bit<8> m; }
header number_t { bit<32> n; }
header error_t { bit<16> e; }

struct headers_t {
    mark_t mark;
    error_t err;
    kind_t kind;
    tag_t[2] tags;
    number_t count;
    number_t last;
}
struct metadata_t { bit<8> branch; bit<16> peeked; }

parser TagParser(packet_in pkt, inout headers_t hdr) {
    state start {
        pkt.extract(hdr.tags.next);
        transition select(hdr.tags.last.more) {
            1 : start;
            default : accept;
        }
    }
}

parser IngressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t ig_intr_md) {
    TagParser() tag_parser;
    value_set<bit<8>>(2) kinds;

    state start {
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
        transition select(pkt.lookahead<bit<8>>()) {
            1 : tagged;
            0x20 &&& 0xf0 : peek;
            0x30 .. 0x3f : ranged;
            kinds : listed;
        }
    }
    state tagged {
        pkt.extract(hdr.kind);
        tag_parser.apply(pkt, hdr);
        meta.branch = 1;
        transition accept;
    }
    state peek {
        pkt.extract(hdr.kind);
        meta.branch = 2;
        meta.peeked = pkt.lookahead<peek_t>().v;
        transition accept;
    }
    state ranged {
        transition select(pkt.lookahead<bit<8>>(), pkt.lookahead<bit<16>>()) {
            (0x31, 0x3107) : three;
            (_, _) : four;
        }
    }
    state three {
        pkt.extract(hdr.kind);
        meta.branch = 3;
        transition accept;
    }
    state four {
        pkt.extract(hdr.kind);
        meta.branch = 4;
        transition accept;
    }
    state listed {
        pkt.extract(hdr.kind);
        meta.branch = 5;
        transition accept;
    }
}

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    apply {
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port;
        hdr.mark.setValid();
        if (ig_prsr_md.parser_err != PARSER_ERROR_OK) {
            hdr.mark.m = 0xee;
            hdr.err = { ig_prsr_md.parser_err };
        } else {
            hdr.mark.m = 0xf0 | meta.branch;
            if (meta.branch == 1) {
                hdr.count.setValid();
                hdr.last.setValid();
                hdr.count.n = 1;
                hdr.last.n = (bit<32>)hdr.tags[0].value;
                if (hdr.tags[1].isValid()) {
                    hdr.count.n = 2;
                    hdr.last.n = (bit<32>)hdr.tags[1].value;
                }
            } else if (meta.branch == 2) {
                hdr.last.setValid();
                hdr.last.n = (bit<32>)meta.peeked;
            }
        }
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        pkt.emit(hdr);
    }
}

#include "common/egress.p4"
