// What a sink takes out of packets for hosts: whole stacks, so that they leave with the bytes that
// they were sent with. Which ones, the ingress decides, and the parser of the egress reads past
// them.

// Words that Length says of the longest stack that is taken out.
const bit<8> MOST_WORDS = 35;

control Sink(in headers_t hdr, in bool from_host, in PortId_t port, in bit<16> parser_err,
             out bit<1> strips, inout bit<3> drop_ctl) {
    Front() front_of;
    Intact() intact;
    Counter<bit<64>, bit<3>>(8, CounterType_t.PACKETS) packets;
    bit<16> front;
    bit<16> datagram;
    bit<16> outside;
    bit<16> end;
    bit<16> within;
    bit<16> beyond;
    bit<8> behind;
    bit<8> many;
    bool to_host;
    bool marked;
    bool ours;
    bool cut;
    bool fragment;
    bool hidden;

    action sink() {
        to_host = true;
    }

    table ports {
        key = { port : exact; }
        actions = { sink; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    action known() {
        ours = true;
    }

    // Headers of this network's domains: before there is one, of any.
    table domains {
        key = {
            hdr.telemetry.version : exact;
            hdr.telemetry.reserved : exact;
            hdr.telemetry.domain : ternary;
            hdr.telemetry.own_instructions : exact;
            hdr.telemetry.own_flags : exact;
        }
        actions = { known; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    action hide() {
        hidden = true;
    }

    // What may have a stack behind it that the parser does not reach: extension headers of IPv6,
    // in a network that puts stacks behind them. What is IPv6 by its EtherType and not by its version
    // is damaged, and so is where a stack would end.
    table unread {
        key = { hdr.ipv6.next_header : exact; }
        actions = { hide; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    action of4() {
        datagram = hdr.ipv4.total_length;
    }

    action of6() {
        datagram = hdr.ipv6.payload_length + 40;
    }

    action words() {
        end = 8w0 ++ hdr.shim.length;
        behind = 3 |-| hdr.shim.length;
        many = hdr.shim.length |-| MOST_WORDS;
    }

    action bytes() {
        end = end << 2;
    }

    // Of UDP within its own length, 8 bytes of header and the shim in front.
    action within_udp() {
        within = hdr.udp.length;
        end = end + 12;
    }

    action within_tcp() {
        within = datagram;
        end = end + front;
    }

    action compare() {
        beyond = end |-| within;
    }

    action drop() {
        drop_ctl = 1;
    }

    // Counts what became of packets with the marker whose stacks are not taken out: 2 dropped since
    // the stack asks for it, 3 lengths that disagree or a stack that can't be reached and 4 a
    // fragment, all dropped, 5 no stack of this network's.
    apply {
        strips = 0;
        to_host = false;
        marked = false;
        ours = false;
        fragment = false;
        hidden = false;
        datagram = 0;
        ports.apply();
        if (hdr.ipv4.isValid()) {
            of4();
            marked = hdr.ipv4.tos_rest[4:4] == 1;
            fragment = hdr.ipv4.flags[0:0] == 1;
        } else if (hdr.ipv6.isValid()) {
            of6();
            marked = hdr.ipv6.traffic_class[4:4] == 1;
            if (hdr.ipv6.version == 6) {
                unread.apply();
            } else {
                hide();
            }
        }
        if (hdr.telemetry.isValid() && parser_err == PARSER_ERROR_OK) {
            domains.apply();
        }
        front_of.apply(hdr, front);
        intact.apply(hdr, front, datagram, cut, outside);
        words();
        bytes();
        if (hdr.udp.isValid()) {
            within_udp();
        } else {
            within_tcp();
        }
        compare();
        if (to_host && !from_host && marked) {
            if (hidden) {
                drop();
                packets.count(3);
            } else if (!ours) {
                packets.count(5);
            } else if (fragment) {
                drop();
                packets.count(4);
            } else if (cut || outside != 0 || beyond != 0 || behind != 0 || many != 0) {
                drop();
                packets.count(3);
            } else if (hdr.shim.length[0:0] == 0 || hdr.telemetry.words != HOP_WORDS
                       || hdr.telemetry.instructions != NODE_AND_LATENCY) {
                drop();
                packets.count(3);
            } else if (hdr.telemetry.discard == 1) {
                drop();
                packets.count(2);
            } else {
                strips = 1;
            }
        }
    }
}

// Takes the stack out, behind which the parser has read. It has added up the words by which the
// transport checksum changes.
control Strip(inout headers_t hdr, inout metadata_t meta) {
    bit<16> size;
    bit<16> less;

    action words() {
        size = 8w0 ++ hdr.shim.length;
    }

    action bytes() {
        size = size << 2;
    }

    action with_shim() {
        size = size + 4;
    }

    action complement() {
        less = ~size;
    }

    action take_out() {
        meta.telemetry.checksum = meta.taken;
        meta.telemetry.longer = less;
        meta.telemetry.shim = 0;
        meta.telemetry.flags = 0;
        meta.telemetry.left = 0;
        hdr.shim = { 0, 0, 0, 0, 0 };
        hdr.telemetry = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        hdr.shim.setInvalid();
        hdr.telemetry.setInvalid();
        hdr.taken[0].setInvalid();
        hdr.taken[1].setInvalid();
        hdr.taken[2].setInvalid();
        hdr.taken[3].setInvalid();
        hdr.taken[4].setInvalid();
        hdr.taken[5].setInvalid();
        hdr.taken[6].setInvalid();
        hdr.taken[7].setInvalid();
        hdr.taken[8].setInvalid();
        hdr.taken[9].setInvalid();
        hdr.taken[10].setInvalid();
        hdr.taken[11].setInvalid();
        hdr.taken[12].setInvalid();
        hdr.taken[13].setInvalid();
        hdr.taken[14].setInvalid();
        hdr.taken[15].setInvalid();
    }

    action give_back4() {
        hdr.ipv4.mark = hdr.shim.dscp[5:3];
        hdr.ipv4.tos_rest[4:2] = hdr.shim.dscp[2:0];
        hdr.ipv4.total_length = hdr.ipv4.total_length - size;
        meta.telemetry.longer_ip = less;
        meta.changed = true;
    }

    action give_back6() {
        hdr.ipv6.traffic_class[7:2] = hdr.shim.dscp;
        hdr.ipv6.payload_length = hdr.ipv6.payload_length - size;
    }

    action shorten_udp() {
        hdr.udp.length = hdr.udp.length - size;
    }

    apply {
        words();
        bytes();
        with_shim();
        complement();
        if (hdr.ipv4.isValid()) {
            give_back4();
        } else {
            give_back6();
        }
        if (hdr.tcp.isValid()) {
            meta.telemetry.tcp = 1;
        } else {
            if (hdr.udp.checksum != 0) {
                meta.telemetry.udp = 1;
            }
            shorten_udp();
        }
        take_out();
    }
}
