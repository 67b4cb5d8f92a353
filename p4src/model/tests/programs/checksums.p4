// The ones' complement checksum: a full one (an IPv4 header, RFC 1071) and an incremental one.
//
//: # 4500 0073 0000 4000 4011 ---- c0a8 0001 c0a8 00c7 has checksum b861;
//: # the control clears nothing, the deparser computes it
//: send 1 4500007300004000401100 00c0a80001c0a800c7 1234 00000005
//: expect 1 450000730000400040 11 b861 c0a80001c0a800c7 1234 00000005
//: # kind 5 becomes 6: 1234 was the checksum of the rest, its change is taken up
//: send 2 450000730000400040 11 0000 c0a80001c0a800c7 1234 00000005
//: expect 2 450000730000400040 11 b861 c0a80001c0a800c7 1233 00000006

#include <core.p4>
#include <tna.p4>

header ipv4_t {
    bit<8> version_ihl; bit<8> tos; bit<16> len; bit<16> id; bit<16> frag;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header body_t { bit<16> checksum; bit<32> kind; }
struct headers_t { ipv4_t ipv4; body_t body; }
struct metadata_t { bit<16> rest; }

parser IngressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t ig_intr_md) {
    Checksum() body_checksum;
    state start {
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
        pkt.extract(hdr.ipv4);
        pkt.extract(hdr.body);
        body_checksum.subtract({ hdr.body.checksum });
        body_checksum.subtract({ hdr.body.kind });
        meta.rest = body_checksum.get();
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
        if (ig_intr_md.ingress_port == 2) {
            hdr.body.kind = 6;
        }
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    Checksum() ipv4_checksum;
    Checksum() body_checksum;
    apply {
        hdr.ipv4.checksum = ipv4_checksum.update({
            hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.frag,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst });
        hdr.body.checksum = body_checksum.update({ hdr.body.kind, meta.rest });
        pkt.emit(hdr);
    }
}

#include "common/egress.p4"
