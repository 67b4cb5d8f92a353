// Where a packet leaves: by a port pair, by a route (longest prefix, with ECMP), or to the CPU.
//
// Each step asks whether an earlier one has decided, instead of lying within it: tables that are
// nested over several stages keep all that follows in the program from those stages.

// The complement of a TTL of 1, in its place in the header.
const bit<16> LOWER_TTL = 0xFEFF;

control Forwarding(inout headers_t hdr, inout before_t before, inout bool changed,
                   in PortId_t ingress_port, in word_t flow_word, in bool collects,
                   inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                   inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    bit<16> group;
    bit<8> slot;
    bool decided;
    bool spreads;
    bool routed;
    bit<8> flow_byte;
    Hash<bit<8>>(HashAlgorithm_t.CRC8) flow6;

    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        decided = true;
    }

    action drop() {
        decided = true;
        ig_dprsr_md.drop_ctl = 1;
    }

    // Ethernet types that the switch's own control plane wants: ARP, LLDP, ...
    table punt {
        key = { hdr.ethernet.type : exact; }
        actions = { send; NoAction; }
        const default_action = NoAction;
        size = PUNTED_TYPES;
    }

    // Bump in the wire: what comes in here leaves there.
    table port_pair {
        key = { ingress_port : exact; }
        actions = { send; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    action route(PortId_t port, mac_t src, mac_t dst) {
        ig_tm_md.ucast_egress_port = port;
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        routed = true;
    }

    action lower() {
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        before.ttl = LOWER_TTL;
        changed = true;
    }

    action lower6() {
        hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
    }

    // IPv6 has no keyed hash; RFC 6438 asks for these.
    action spread_by_label() {
        flow_byte = flow6.get({ hdr.ipv6.flow_label, hdr.ipv6.src_network, hdr.ipv6.src_interface,
                                hdr.ipv6.dst_network, hdr.ipv6.dst_interface });
    }

    // The members of a group are its slots 0 to mask; flows spread over them by a hash.
    action spread(bit<16> to_group, bit<8> mask) {
        spreads = true;
        group = to_group;
        slot = flow_byte & mask;
    }

    table routes {
        key = { hdr.ipv4.dst : lpm; }
        actions = { route; spread; drop; }
        const default_action = drop;
        size = ROUTES;
    }

    table routes6 {
        key = { hdr.ipv6.dst_network : lpm; }
        actions = { route; spread; drop; }
        const default_action = drop;
        size = ROUTES6;
    }

    table members {
        key = { group : exact; slot : exact; }
        actions = { route; drop; }
        const default_action = drop;
        size = ROUTE_MEMBERS;
    }

    apply {
        decided = false;
        spreads = false;
        group = 0;
        slot = 0;
        routed = false;
        flow_byte = flow_word[15:8];
        if (hdr.ipv6.isValid()) {
            spread_by_label();
        }
        if (collects) {
            decided = true;
        } else {
            punt.apply();
        }
        if (!decided) {
            port_pair.apply();
        }
        if (!decided) {
            if (hdr.ipv4.isValid() && hdr.ipv4.ttl[7:1] != 0) {
                routes.apply();
            } else if (hdr.ipv6.isValid() && hdr.ipv6.hop_limit[7:1] != 0) {
                routes6.apply();
            } else {
                drop();
            }
        }
        if (spreads) {
            members.apply();
        }
        if (routed && hdr.ipv6.isValid()) {
            lower6();
        } else if (routed) {
            lower();
        }
    }
}
