// Between the gresses: bridged metadata, drops, mirrors, recirculation, resubmission, multicast,
// copies to the CPU, bypass, digests, counters, port metadata.
//
// The egress appends a trailer: what came with the packet (bridged or mirror header) and the port.
//
//: # op 0: bridged metadata carry x; egress puts it behind the header
//: send 5 00 2a 0000 00000000 00000000 ff
//: expect 6 00 2a 0000 00000000 00000000 b0 2a 0006 ff
//: # op 1: dropped; op 2: no port was chosen
//: send 5 01 00 0000 00000000 00000000
//: send 5 02 00 0000 00000000 00000000
//: # op 3: bypass leaves the egress out: the bridged header is still in front
//: send 5 03 07 0000 00000000 00000000
//: expect 6 b0 07 03 07 0000 00000000 00000000
//: # op 4: ingress mirror of the packet as it came, cut to 8 bytes after the mirror header
//: mirror 9 33 12
//: send 5 04 07 0000 11111111 22222222 3333
//: expect 33 04 07 0000 11111111 22222222 e1 99 0021
//: expect 6 04 08 0000 11111111 22222222 b0 07 0006 3333
//: # op 5: a session that is not configured: only the packet itself
//: send 5 05 00 0000 00000000 00000000
//: expect 6 05 00 0000 00000000 00000000 b0 00 0006
//: # op 6: recirculated until y is 3; it leaves by port 8
//: send 5 06 00 0000 00000000 00000000
//: expect 8 06 00 0003 00000000 00000000 b0 00 0008
//: # op 7: resubmitted once with x in the resubmit header
//: send 5 07 55 0000 00000000 00000000
//: expect 6 07 55 0055 00000000 00000000 b0 55 0006
//: # op 8: multicast to two ports and replicas, unicast as well
//: group 3 1:10 2:11
//: send 5 08 00 0000 00000000 00000000
//: expect 6 08 00 0000 00000000 00000000 b0 00 0006
//: expect 10 08 00 0001 00000000 00000000 b0 00 000a
//: expect 11 08 00 0002 00000000 00000000 b0 00 000b
//: # op 9: a copy to the CPU
//: cpu 64
//: send 5 09 00 0000 00000000 00000000
//: expect 6 09 00 0000 00000000 00000000 b0 00 0006
//: expect 64 09 00 0000 00000000 00000000 b0 00 0040
//: # op 10: a digest
//: send 5 0a 12 3456 0000000a 00000000
//: expect 6 0a 12 3456 0000000a 00000000 b0 12 0006
//: digest news x=0x12 y=0x3456
//: # op 11: a counter of packets and bytes
//: send 5 0b 03 0000 00000000 00000000 ffff
//: expect 6 0b 03 0000 00000000 00000000 b0 03 0006 ffff
//: counter visits 3 = 1 14
//: # op 12: port metadata
//: metadata 5 0000000000001234
//: send 5 0c 00 0000 00000000 00000000
//: expect 6 0c 00 1234 00000000 00000000 b0 00 0006
//: # op 13: egress mirror: the packet as it leaves, then once more through the egress
//: mirror 10 34 100
//: send 5 0d 00 0000 00000000 00000000
//: expect 6 0d 00 0000 00000000 00000000 b0 00 0006
//: expect 34 0d 00 0000 00000000 00000000 e2 77 0022 b0 00 0006
//: # op 14: time stamps
//: time 0x123456
//: send 5 0e 00 0000 00000000 00000000
//: expect 6 0e 00 0000 00123456 00123456 b0 00 0006

#include "common/types.p4"

const bit<3> INGRESS_MIRROR = 1;
const bit<3> EGRESS_MIRROR = 2;

header bridge_t { bit<8> kind; bit<8> x; }
header trailer_t { bit<8> kind; bit<8> x; bit<16> port; }
header resubmit_t { bit<8> x; bit<56> pad; }
struct port_t { bit<48> pad; bit<16> value; }
struct news_t { bit<8> x; bit<16> y; }

struct headers_t { bridge_t bridge; data_t data; trailer_t trailer; }
struct metadata_t {
    port_t port;
    resubmit_t resubmitted;
    bridge_t mirrored;
    bit<10> session;
}

parser IngressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t ig_intr_md) {
    state start {
        pkt.extract(ig_intr_md);
        transition select(ig_intr_md.resubmit_flag) {
            0 : fresh;
            1 : again;
        }
    }
    state fresh {
        meta.port = port_metadata_unpack<port_t>(pkt);
        pkt.extract(hdr.data);
        transition accept;
    }
    state again {
        pkt.extract(meta.resubmitted);
        pkt.extract(hdr.data);
        transition accept;
    }
}

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Counter<bit<64>, bit<8>>(16, CounterType_t.PACKETS_AND_BYTES) visits;

    apply {
        hdr.bridge = { 0xb0, hdr.data.x };
        ig_tm_md.ucast_egress_port = 6;
        if (hdr.data.op == 1) {
            ig_dprsr_md.drop_ctl = 1;
        } else if (hdr.data.op == 2) {
            ig_tm_md.ucast_egress_port = 0x1ff;
        } else if (hdr.data.op == 3) {
            ig_tm_md.bypass_egress = 1;
        } else if (hdr.data.op == 4) {
            ig_dprsr_md.mirror_type = INGRESS_MIRROR;
            meta.session = 9;
            meta.mirrored = { 0xe1, 0x99 };
            hdr.data.x = hdr.data.x + 1;
        } else if (hdr.data.op == 5) {
            ig_dprsr_md.mirror_type = INGRESS_MIRROR;
            meta.session = 1000;
        } else if (hdr.data.op == 6) {
            if (hdr.data.y == 3) {
                ig_tm_md.ucast_egress_port = 8;
            } else {
                hdr.data.y = hdr.data.y + 1;
                hdr.bridge.kind = 0xb1;
                ig_tm_md.ucast_egress_port = 68;
            }
        } else if (hdr.data.op == 7) {
            if (ig_intr_md.resubmit_flag == 0) {
                ig_dprsr_md.resubmit_type = 1;
                meta.resubmitted = { hdr.data.x, 0 };
            } else {
                hdr.data.y = (bit<16>)meta.resubmitted.x;
            }
        } else if (hdr.data.op == 8) {
            ig_tm_md.mcast_grp_a = 3;
        } else if (hdr.data.op == 9) {
            ig_tm_md.copy_to_cpu = 1;
        } else if (hdr.data.op == 10) {
            ig_dprsr_md.digest_type = 1;
        } else if (hdr.data.op == 11) {
            visits.count(hdr.data.x);
        } else if (hdr.data.op == 12) {
            hdr.data.y = meta.port.value;
        } else if (hdr.data.op == 14) {
            hdr.data.a = ig_intr_md.ingress_mac_tstamp[31:0];
            hdr.data.b = ig_prsr_md.global_tstamp[31:0];
        }
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    Mirror() mirror;
    Resubmit() resubmit;
    Digest<news_t>() news;
    apply {
        if (ig_dprsr_md.mirror_type == INGRESS_MIRROR) {
            mirror.emit<bridge_t>(meta.session, { meta.mirrored.kind, meta.mirrored.x });
        }
        if (ig_dprsr_md.resubmit_type == 1) {
            resubmit.emit(meta.resubmitted);
        }
        if (ig_dprsr_md.digest_type == 1) {
            news.pack({ hdr.data.x, hdr.data.y });
        }
        pkt.emit(hdr);
    }
}

struct egress_metadata_t { bridge_t came_with; bit<10> session; bit<8> kind; bit<8> x; }

parser EgressParser(packet_in pkt, out headers_t hdr, out egress_metadata_t meta,
                    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        pkt.extract(eg_intr_md);
        pkt.extract(meta.came_with);
        pkt.extract(hdr.data);
        transition accept;
    }
}

control Egress(inout headers_t hdr, inout egress_metadata_t meta,
               in egress_intrinsic_metadata_t eg_intr_md,
               in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
               inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
               inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    apply {
        if (meta.came_with.kind != 0xb1) {
            hdr.trailer = { meta.came_with.kind, meta.came_with.x, 7w0 ++ eg_intr_md.egress_port };
        }
        if (eg_intr_md.egress_rid != 0) {
            hdr.data.y = eg_intr_md.egress_rid;
        }
        if (hdr.data.op == 13 && meta.came_with.kind == 0xb0) {
            eg_dprsr_md.mirror_type = EGRESS_MIRROR;
            meta.session = 10;
            meta.kind = 0xe2;
            meta.x = 0x77;
        }
    }
}

control EgressDeparser(packet_out pkt, inout headers_t hdr, in egress_metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Mirror() mirror;
    apply {
        if (eg_dprsr_md.mirror_type == EGRESS_MIRROR) {
            mirror.emit<bridge_t>(meta.session, { meta.kind, meta.x });
        }
        pkt.emit(hdr.data);
        pkt.emit(hdr.trailer);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
