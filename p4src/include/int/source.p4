// What a source puts into packets from hosts: a stack with its own hop, or where that does not fit,
// a header that says so.

// Bytes of shim and header, and with the hop.
const bit<16> HEADER_BYTES = 16;
const bit<16> STACK_BYTES = 24;

control Source(inout headers_t hdr, inout metadata_t meta, in bool enters, in bool whole,
               in bit<16> front, in bit<16> datagram, in bit<16> room, in bit<32> latency,
               out event_t event) {
    Intact() intact;
    Counter<bit<64>, bit<3>>(8, CounterType_t.PACKETS) packets;
    bit<32> node;
    bit<16> own_domain;
    bit<8> most;
    bit<16> outside;
    bit<16> with_hop;
    bit<16> bare;
    bit<16> over;
    bit<16> over_bare;
    bool allowed;
    bool sources;
    bool cut;
    bool odd;
    bool carries;

    action source_as(bit<32> number, bit<16> of_domain, bit<8> hops) {
        sources = true;
        node = number;
        own_domain = of_domain;
        most = hops;
    }

    // Packets from hosts for the network, of epochs in which they get stacks.
    table insertion {
        key = { enters : exact; hdr.bridge.timestamp : exact; }
        actions = { source_as; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    action allow() {
        allowed = true;
    }

    // Whether any do, whatever has been said of their epoch.
    table sourcing {
        actions = { allow; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    action lengthen() {
        with_hop = datagram |+| STACK_BYTES;
        bare = datagram |+| HEADER_BYTES;
    }

    action compare() {
        over = with_hop |-| room;
        over_bare = bare |-| room;
    }

    action odd_checksum() {
        odd = true;
    }

    // No sender writes all ones, but for UDP: what is taken out could differ from what was put in.
    table checksums {
        key = { hdr.ipv4.isValid() : exact; hdr.ipv4.checksum : ternary; hdr.tcp.isValid() : exact;
                hdr.tcp.checksum : ternary; }
        actions = { odd_checksum; NoAction; }
        const default_action = NoAction;
        const entries = {
            (true, 0xFFFF, false, 0 &&& 0) : odd_checksum();
            (true, 0xFFFF, true, 0 &&& 0) : odd_checksum();
            (true, 0 &&& 0, true, 0xFFFF) : odd_checksum();
            (false, 0 &&& 0, true, 0xFFFF) : odd_checksum();
        }
        size = 4;
    }

    // All but what the two ways differ in.
    action insert() {
        hdr.shim.setValid();
        hdr.shim.kind = INT_SHIM;
        hdr.shim.zero = 0;
        hdr.shim.dscp = hdr.bridge.dscp;
        hdr.shim.reserved = 0;
        hdr.telemetry.setValid();
        hdr.telemetry.version = INT_VERSION;
        hdr.telemetry.discard = 0;
        hdr.telemetry.exceeded = 0;
        hdr.telemetry.reserved = 0;
        hdr.telemetry.words = HOP_WORDS;
        hdr.telemetry.instructions = NODE_AND_LATENCY;
        hdr.telemetry.domain = own_domain;
        hdr.telemetry.own_instructions = 0;
        hdr.telemetry.own_flags = 0;
        meta.telemetry.shim = 0;
        meta.telemetry.flags = 0;
        meta.telemetry.left = 0;
        meta.telemetry.dscp = 8w0 ++ hdr.bridge.dscp ++ 2w0;
        meta.telemetry.instructions = NODE_AND_LATENCY;
        meta.telemetry.domain = own_domain;
    }

    action with_own() {
        hdr.shim.length = 5;
        hdr.telemetry.too_long = 0;
        hdr.telemetry.left = most - 1;
        hdr.hop.setValid();
        hdr.hop.node = node;
        hdr.hop.latency = latency;
        meta.telemetry.node = node;
        meta.telemetry.latency = latency;
        meta.telemetry.longer = STACK_BYTES;
    }

    action without_own() {
        hdr.shim.length = 3;
        hdr.telemetry.too_long = 1;
        hdr.telemetry.left = most;
        meta.telemetry.longer = HEADER_BYTES;
    }

    action longer4() {
        hdr.ipv4.total_length = hdr.ipv4.total_length + meta.telemetry.longer;
        hdr.ipv4.tos_rest[4:4] = 1;
        meta.telemetry.longer_ip = meta.telemetry.longer;
        meta.changed = true;
    }

    action longer6() {
        hdr.ipv6.payload_length = hdr.ipv6.payload_length + meta.telemetry.longer;
        hdr.ipv6.traffic_class[4:4] = 1;
    }

    action longer_udp() {
        hdr.udp.length = hdr.udp.length + meta.telemetry.longer;
    }

    action follow_tcp() {
        meta.telemetry.tcp = 1;
        meta.telemetry.checksum = ~hdr.tcp.checksum;
    }

    action follow_udp() {
        meta.telemetry.udp = 1;
        meta.telemetry.checksum = ~hdr.udp.checksum;
    }

    // Counts what the packet went with: 1 a hop, 2 the header alone; or why without: 3 it would be
    // too long, 4 a checksum, 5 neither TCP nor UDP, or headers that can't be read, 6 a fragment.
    // The event is the same number.
    apply {
        node = 0;
        own_domain = 0;
        most = 0;
        allowed = false;
        sources = false;
        odd = false;
        carries = false;
        event = IDLE;
        sourcing.apply();
        insertion.apply();
        intact.apply(hdr, front, datagram, cut, outside);
        checksums.apply();
        lengthen();
        compare();
        if (sources && allowed) {
            if (hdr.ipv4.isValid() && (hdr.ipv4.fragment != 0 || hdr.ipv4.flags[0:0] == 1)) {
                packets.count(6);
                event = 6;
            } else if (!whole || cut || outside != 0) {
                packets.count(5);
                event = 5;
            } else if (over_bare != 0) {
                packets.count(3);
                event = 3;
            } else if (odd) {
                packets.count(4);
                event = 4;
            } else if (over != 0) {
                carries = true;
                without_own();
                packets.count(2);
                event = 2;
            } else {
                carries = true;
                with_own();
                packets.count(1);
                event = 1;
            }
        }
        if (carries) {
            insert();
            if (hdr.ipv4.isValid()) {
                longer4();
            } else {
                longer6();
            }
            if (hdr.tcp.isValid()) {
                follow_tcp();
            } else {
                if (hdr.udp.checksum != 0) {
                    follow_udp();
                }
                longer_udp();
            }
        }
    }
}
