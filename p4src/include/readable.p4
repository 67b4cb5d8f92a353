// Whether a packet is measured: IPv4 whose headers could be read to the ports, and whose total
// length covers what was read (a frame may be padded). `missing` says by how much it does not. How
// long the packet is by that length is for the egress, which is the first to know how long it is;
// programs that define TELEMETRY ask it of IPv6 as well.

control Readable(in headers_t hdr, inout metadata_t meta, in bit<16> parser_err,
                 out bit<16> missing) {
    bit<16> needed;
    bit<16> front;
#ifdef TELEMETRY
    bit<16> front6;
#endif

    action need(bit<16> bytes) {
        needed = bytes;
    }

    action in_front(bit<16> bytes) {
        front = bytes;
#ifdef TELEMETRY
        front6 = bytes + 40;
#endif
    }

    // What comes before the IPv4 header at egress: the bridged header, Ethernet, and the tags.
    table layer2_length {
        key = { hdr.vlan[0].isValid() : exact; hdr.vlan[1].isValid() : exact; }
        actions = { in_front; }
        const default_action = in_front(BRIDGE_BYTES + 14);
        const entries = {
            (true, false) : in_front(BRIDGE_BYTES + 18);
            (true, true) : in_front(BRIDGE_BYTES + 22);
        }
        size = 2;
    }

    // A step of its own: a condition can't compute.
    action compare() {
        missing = needed |-| hdr.ipv4.total_length;
        meta.end = hdr.ipv4.total_length |+| front;
    }

#ifdef TELEMETRY
    action compare6() {
        meta.end = hdr.ipv6.payload_length |+| front6;
    }
#endif

    table header_length {
        key = { hdr.ipv4.ihl : exact; hdr.ports.isValid() : exact; }
        actions = { need; }
        const default_action = need(0xFFFF);
        const entries = {
            (5, false) : need(20);
            (6, false) : need(24);
            (7, false) : need(28);
            (8, false) : need(32);
            (9, false) : need(36);
            (10, false) : need(40);
            (11, false) : need(44);
            (12, false) : need(48);
            (13, false) : need(52);
            (14, false) : need(56);
            (15, false) : need(60);
            (5, true) : need(24);
            (6, true) : need(28);
            (7, true) : need(32);
            (8, true) : need(36);
            (9, true) : need(40);
            (10, true) : need(44);
            (11, true) : need(48);
            (12, true) : need(52);
            (13, true) : need(56);
            (14, true) : need(60);
            (15, true) : need(64);
        }
        size = 22;
    }

    // Nothing is nested over several stages: what follows in the program would have to wait for the
    // last of them.
    apply {
        meta.measured = false;
        header_length.apply();
        layer2_length.apply();
        compare();
#ifdef TELEMETRY
        if (hdr.ipv6.isValid()) {
            compare6();
        }
#endif
        if (meta.readable && parser_err == PARSER_ERROR_OK && missing == 0) {
            meta.measured = true;
            meta.class[0:0] = 1;
        }
    }
}
