// From bytes to headers, the same in both gresses: Ethernet, up to two VLAN tags, IPv4 with its
// options, the ports of TCP, UDP and SCTP in first fragments; IPv6 as far as it is forwarded by.
//
// What can't be read to the ports is left unreadable: it is forwarded and not measured.

parser HeaderParser(packet_in pkt, inout headers_t hdr, inout metadata_t meta) {
#ifdef TELEMETRY
#ifndef ROLE_TRANSIT
    Checksum() taken;
#endif
#endif

    state start {
        meta.readable = false;
#ifdef TELEMETRY
        meta.readable6 = false;
#endif
        meta.ports = 0;
        meta.class = 0;
        pkt.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_VLAN : outer_tag;
            TYPE_QINQ : outer_tag;
            TYPE_IPV4 : ipv4;
            TYPE_IPV6 : ipv6;
            TYPE_COLLECT : collect;
            default : accept;
        }
    }

    state collect {
        pkt.extract(hdr.collect);
        transition accept;
    }

    state outer_tag {
        pkt.extract(hdr.vlan[0]);
        transition select(hdr.vlan[0].type) {
            TYPE_VLAN : inner_tag;
            TYPE_QINQ : inner_tag;
            TYPE_IPV4 : ipv4;
            TYPE_IPV6 : ipv6;
            default : accept;
        }
    }

    state inner_tag {
        pkt.extract(hdr.vlan[1]);
        transition select(hdr.vlan[1].type) {
            TYPE_IPV4 : ipv4;
            TYPE_IPV6 : ipv6;
            default : accept;
        }
    }

    // Counted and forwarded, not measured.
    state ipv6 {
        meta.class = IPV6;
        pkt.extract(hdr.ipv6);
#ifdef TELEMETRY
        transition select(hdr.ipv6.traffic_class, hdr.ipv6.next_header) {
            (0x10 &&& 0x10, PROTOCOL_TCP) : tcp6;
            (0x10 &&& 0x10, PROTOCOL_UDP) : udp6;
            (0 &&& 0x10, PROTOCOL_TCP) : plain_tcp6;
            (0 &&& 0x10, PROTOCOL_UDP) : plain_udp6;
#ifdef ROLE_TRANSIT
            default : accept;
#else
            (0 &&& 0, PROTOCOL_SCTP) : sctp6;
            (0 &&& 0, HOP_BY_HOP) : accept;
            (0 &&& 0, ROUTING) : accept;
            (0 &&& 0, FRAGMENT) : accept;
            (0 &&& 0, AUTHENTICATION) : accept;
            (0 &&& 0, DESTINATION) : accept;
            default : readable6;
#endif
        }
#else
        transition accept;
#endif
    }

    state ipv4 {
        pkt.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 5) : transport;
            (4, 6) : options1;
            (4, 7) : options2;
            (4, 8) : options3;
            (4, 9) : options4;
            (4, 10) : options5;
            (4, 11) : options6;
            (4, 12) : options7;
            (4, 13) : options8;
            (4, 14) : options9;
            (4, 15) : options10;
            default : accept;
        }
    }

    // Each state has its own element, so that none is extracted twice: n options fill the last n.
    state options10 { pkt.extract(hdr.options[0]); transition options9; }
    state options9 { pkt.extract(hdr.options[1]); transition options8; }
    state options8 { pkt.extract(hdr.options[2]); transition options7; }
    state options7 { pkt.extract(hdr.options[3]); transition options6; }
    state options6 { pkt.extract(hdr.options[4]); transition options5; }
    state options5 { pkt.extract(hdr.options[5]); transition options4; }
    state options4 { pkt.extract(hdr.options[6]); transition options3; }
    state options3 { pkt.extract(hdr.options[7]); transition options2; }
    state options2 { pkt.extract(hdr.options[8]); transition options1; }
    state options1 { pkt.extract(hdr.options[9]); transition transport; }

    state transport {
        transition select(hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (0, PROTOCOL_TCP) : ports;
            (0, PROTOCOL_UDP) : ports;
            (0, PROTOCOL_SCTP) : ports;
            default : readable;
        }
    }

    state ports {
        pkt.extract(hdr.ports);
        meta.ports = hdr.ports.both;
#ifdef TELEMETRY
        transition behind_ports;
#else
        transition readable;
#endif
    }

#ifdef TELEMETRY
#include "int/parsing.p4"
#endif

    state readable {
        meta.readable = true;
        transition accept;
    }
}

parser IngressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t ig_intr_md) {
    HeaderParser() headers;

#ifdef RESUBMITS
    state start {
        pkt.extract(ig_intr_md);
        transition select(ig_intr_md.resubmit_flag) {
            0 : first;
            1 : again;
        }
    }

    state first {
        pkt.advance(PORT_METADATA_SIZE);
        transition packet;
    }

    // In the place of the port's metadata.
    state again {
        pkt.extract(meta.resubmitted);
        transition packet;
    }

    state packet {
        headers.apply(pkt, hdr, meta);
        transition accept;
    }
#else
    state start {
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
#ifdef TELEMETRY
        meta.strips = 0;
#endif
        headers.apply(pkt, hdr, meta);
        transition accept;
    }
#endif
}

parser EgressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                    out egress_intrinsic_metadata_t eg_intr_md) {
    HeaderParser() headers;

    state start {
        pkt.extract(eg_intr_md);
        meta.kind = pkt.lookahead<bit<8>>();
        transition select(meta.kind) {
            CONTINUED : continued;
#ifdef NOTICES
            NOTICE : notice;
#endif
            default : bridged;
        }
    }

    state bridged {
        pkt.extract(hdr.bridge);
        meta.end = hdr.bridge.end;
#ifdef TELEMETRY
        meta.strips = hdr.bridge.strips;
#endif
        transition packet;
    }

    state continued {
        pkt.advance(8);
        meta.end = 0;
#ifdef TELEMETRY
        meta.strips = 0;
#endif
        transition packet;
    }

#ifdef NOTICES
    // Only the Ethernet header of what was copied is read.
    state notice {
        pkt.extract(hdr.notice);
        pkt.extract(hdr.ethernet);
        meta.end = 0;
        meta.readable = false;
        meta.ports = 0;
        meta.class = 0;
#ifdef TELEMETRY
        meta.strips = 0;
#endif
        transition accept;
    }
#endif

    state packet {
        headers.apply(pkt, hdr, meta);
        transition accept;
    }
}

// The mark and the TTL may have changed, and the header checksum follows (RFC 1624): a wrong one
// stays wrong. So it is with what a stack changes behind the ports.
control Deparsing(packet_out pkt, inout headers_t hdr, in metadata_t meta) {
    Checksum() ipv4_checksum;
#ifdef TELEMETRY
    Checksum() tcp_checksum;
    Checksum() udp_checksum;
#endif

    apply {
        if (meta.changed) {
            hdr.ipv4.checksum = ipv4_checksum.update({
                meta.before.checksum, meta.before.ones, meta.before.tos, meta.before.ttl,
#ifdef CARRIER_IP_ID
                meta.before.identification, hdr.ipv4.identification,
#endif
#ifdef TELEMETRY
                meta.telemetry.longer_ip,
#endif
                8w0, hdr.ipv4.mark, hdr.ipv4.tos_rest });
        }
#ifdef TELEMETRY
        if (meta.telemetry.tcp == 1) {
            hdr.tcp.checksum = tcp_checksum.update({
                meta.telemetry.checksum, meta.telemetry.shim, meta.telemetry.flags,
                meta.telemetry.left, hdr.shim.kind, hdr.shim.length, hdr.telemetry.version,
                hdr.telemetry.discard, hdr.telemetry.exceeded, hdr.telemetry.too_long,
                hdr.telemetry.reserved, hdr.telemetry.words,
                hdr.telemetry.left, meta.telemetry.dscp, meta.telemetry.instructions,
                meta.telemetry.domain, meta.telemetry.longer, meta.telemetry.node,
                meta.telemetry.latency });
        }
        if (meta.telemetry.udp == 1) {
            // What comes out as no checksum is written as the other zero (RFC 768).
            hdr.udp.checksum = udp_checksum.update({
                meta.telemetry.checksum, meta.telemetry.shim, meta.telemetry.flags,
                meta.telemetry.left, hdr.shim.kind, hdr.shim.length, hdr.telemetry.version,
                hdr.telemetry.discard, hdr.telemetry.exceeded, hdr.telemetry.too_long,
                hdr.telemetry.reserved, hdr.telemetry.words,
                hdr.telemetry.left, meta.telemetry.dscp, meta.telemetry.instructions,
                meta.telemetry.domain, meta.telemetry.longer, meta.telemetry.longer,
                meta.telemetry.node, meta.telemetry.latency }, true);
        }
#endif
        pkt.emit(hdr);
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    Deparsing() deparsing;
    Mirror() mirror;
#ifdef RESUBMITS
    Resubmit() resubmit;
#endif

    apply {
#ifdef RESUBMITS
        if (ig_dprsr_md.resubmit_type == RESUBMITS) {
            resubmit.emit(meta.resubmitted);
        }
#endif
        if (ig_dprsr_md.mirror_type == CONTINUE_MIRROR) {
            mirror.emit<continued_h>(meta.session, { meta.kind });
        }
        deparsing.apply(pkt, hdr, meta);
    }
}

control EgressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Deparsing() deparsing;
#ifdef NOTICES
    Mirror() mirror;
#endif

    apply {
#ifdef NOTICES
        if (eg_dprsr_md.mirror_type == NOTICE_MIRROR) {
            mirror.emit<notice_h>(meta.session, meta.notice);
        }
#endif
        deparsing.apply(pkt, hdr, meta);
    }
}
