// What a switch between others adds to a stack of its own domain: its number, and how long the
// packet was in it. Where it can't, the stack says so, so that no path looks shorter than it was.

// How long the packet was in the switch, in nanoseconds; what is longer than 32 bits can say is one
// less than all ones, which means that nobody knows.
control Residence(in bit<48> arrived, in bit<48> now, out bit<32> latency) {
    bit<16> high;
    bit<32> borrow;

    // Each word by itself: nothing subtracts 48 bits.
    action subtract() {
        latency = now[31:0] - arrived[31:0];
        high = now[47:32] - arrived[47:32];
        borrow = arrived[31:0] |-| now[31:0];
    }

    apply {
        subtract();
        if (high == 1 && borrow != 0) {
            high = 0;
        }
        if (high != 0 || latency == 0xFFFFFFFF) {
            latency = 0xFFFFFFFE;
        }
    }
}

// `enters` says that the packet comes from a host and goes into the network, `passes` that it was
// in the network and stays there, `whole` that all its bytes are there and headers could be read.
// `latency` is what a hop would say, `event` what became of a packet that enters.
control Push(inout headers_t hdr, inout metadata_t meta, in PortId_t port, in bit<48> now,
             in bool enters, in bool passes, in bool whole,
#ifndef ROLE_TRANSIT
             out event_t event,
#endif
             out bit<32> latency) {
    Residence() residence;
    Front() front_of;
#ifndef ROLE_TRANSIT
    Source() source;
#endif
    Counter<bit<64>, bit<3>>(8, CounterType_t.PACKETS) packets;
    bit<32> node;
    bit<16> front;
    bit<16> datagram;
    bit<16> longer;
    bit<16> end;
    bit<16> beyond;
    bit<8> behind;
    bit<16> room;
    bit<16> over;
    bool ours;

    // A datagram that may leave by the port is not longer.
    action limit(bit<16> mtu) {
        room = mtu;
    }

    table mtus {
        key = { port : exact; }
        actions = { limit; }
        const default_action = limit(0);
        size = PORTS;
    }

    action push_as(bit<32> number) {
        ours = true;
        node = number;
    }

    // Stacks of this domain, once there is one, that ask for what this switch can say and hold whole
    // hops: an odd number of words, since the metadata behind the shim has three.
    table domain {
        key = {
            hdr.telemetry.version : exact;
            hdr.telemetry.reserved : exact;
            hdr.telemetry.words : exact;
            hdr.telemetry.instructions : exact;
            hdr.telemetry.domain : exact;
            hdr.telemetry.own_instructions : exact;
            hdr.telemetry.own_flags : exact;
            hdr.shim.length[0:0] : exact;
        }
        actions = { push_as; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    action length4() {
        datagram = hdr.ipv4.total_length;
    }

    action length6() {
        datagram = hdr.ipv6.payload_length + 40;
    }

    action words() {
        end = 8w0 ++ hdr.shim.length;
        behind = hdr.shim.length |-| 2;
        longer = datagram |+| HOP_BYTES;
    }

    action bytes() {
        end = end << 2;
        over = longer |-| room;
    }

    action from_front() {
        end = end + front;
    }

    action compare() {
        beyond = end |-| datagram;
    }

    action remember() {
        meta.telemetry.shim = ~(hdr.shim.kind ++ hdr.shim.length);
        meta.telemetry.flags = ~(hdr.telemetry.version ++ hdr.telemetry.discard
                                 ++ hdr.telemetry.exceeded ++ hdr.telemetry.too_long
                                 ++ hdr.telemetry.reserved[11:3]);
        meta.telemetry.left = ~(hdr.telemetry.reserved[2:0] ++ hdr.telemetry.words
                                ++ hdr.telemetry.left);
    }

    action push() {
        hdr.hop.setValid();
        hdr.hop.node = node;
        hdr.hop.latency = latency;
        hdr.shim.length = hdr.shim.length + 2;
        hdr.telemetry.left = hdr.telemetry.left - 1;
        meta.telemetry.node = node;
        meta.telemetry.latency = latency;
        meta.telemetry.longer = HOP_BYTES;
    }

    action longer4() {
        hdr.ipv4.total_length = hdr.ipv4.total_length + HOP_BYTES;
        meta.telemetry.longer_ip = HOP_BYTES;
        meta.changed = true;
    }

    action longer6() {
        hdr.ipv6.payload_length = hdr.ipv6.payload_length + HOP_BYTES;
    }

    action longer_udp() {
        hdr.udp.length = hdr.udp.length + HOP_BYTES;
    }

    action follow_tcp() {
        meta.telemetry.tcp = 1;
        meta.telemetry.checksum = ~hdr.tcp.checksum;
    }

    action follow_udp() {
        meta.telemetry.udp = 1;
        meta.telemetry.checksum = ~hdr.udp.checksum;
    }

    apply {
        meta.telemetry = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        node = 0;
        room = 0;
        datagram = 0;
        ours = false;
        residence.apply(hdr.bridge.arrived, now, latency);
        front_of.apply(hdr, front);
        mtus.apply();
        if (passes && whole && hdr.telemetry.isValid()) {
            domain.apply();
        }
        if (hdr.ipv4.isValid()) {
            length4();
        } else {
            length6();
        }
        words();
        bytes();
        from_front();
        compare();
        remember();
        if (ours && beyond == 0 && behind != 0) {
            if (hdr.tcp.isValid()) {
                follow_tcp();
            } else if (hdr.udp.checksum != 0) {
                follow_udp();
            }
            if (hdr.telemetry.left == 0 || hdr.shim.length == 0xFF) {
                hdr.telemetry.exceeded = 1;
                packets.count(2);
            } else if (over != 0) {
                hdr.telemetry.too_long = 1;
                packets.count(3);
            } else {
                push();
                if (hdr.ipv4.isValid()) {
                    longer4();
                } else {
                    longer6();
                }
                if (hdr.udp.isValid()) {
                    longer_udp();
                }
                packets.count(1);
            }
        } else if (passes && hdr.telemetry.isValid()) {
            packets.count(4);
        }
#ifndef ROLE_TRANSIT
        source.apply(hdr, meta, enters, whole, front, datagram, room, latency, event);
#endif
    }
}
