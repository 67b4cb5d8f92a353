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
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        before.ttl = LOWER_TTL;
        changed = true;
    }

    // The members of a group are its slots 0 to mask; flows spread over them by a hash.
    action spread(bit<16> to_group, bit<8> mask) {
        spreads = true;
        group = to_group;
        slot = flow_word[15:8] & mask;
    }

    table routes {
        key = { hdr.ipv4.dst : lpm; }
        actions = { route; spread; drop; }
        const default_action = drop;
        size = ROUTES;
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
        if (collects) {
            decided = true;
        } else {
            punt.apply();
        }
        if (!decided) {
            port_pair.apply();
        }
        if (!decided && (!hdr.ipv4.isValid() || hdr.ipv4.ttl < 2)) {
            drop();
        }
        if (!decided) {
            routes.apply();
        }
        if (spreads) {
            members.apply();
        }
    }
}
