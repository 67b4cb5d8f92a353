// Lengths that what is put in and taken out behind a transport header depends on.

// From the IP header to the end of a shim.
control Front(in headers_t hdr, out bit<16> front) {
    action in_front(bit<16> bytes) {
        front = bytes;
    }

    table headers_length {
        key = { hdr.ipv4.isValid() : exact; hdr.ipv4.ihl : ternary; hdr.udp.isValid() : exact; }
        actions = { in_front; }
        const default_action = in_front(0);
        const entries = {
            (false, 0 &&& 0, false) : in_front(64);
            (false, 0 &&& 0, true) : in_front(52);
            (true, 5, false) : in_front(44);
            (true, 6, false) : in_front(48);
            (true, 7, false) : in_front(52);
            (true, 8, false) : in_front(56);
            (true, 9, false) : in_front(60);
            (true, 10, false) : in_front(64);
            (true, 11, false) : in_front(68);
            (true, 12, false) : in_front(72);
            (true, 13, false) : in_front(76);
            (true, 14, false) : in_front(80);
            (true, 15, false) : in_front(84);
            (true, 5, true) : in_front(32);
            (true, 6, true) : in_front(36);
            (true, 7, true) : in_front(40);
            (true, 8, true) : in_front(44);
            (true, 9, true) : in_front(48);
            (true, 10, true) : in_front(52);
            (true, 11, true) : in_front(56);
            (true, 12, true) : in_front(60);
            (true, 13, true) : in_front(64);
            (true, 14, true) : in_front(68);
            (true, 15, true) : in_front(72);
        }
        size = 32;
    }

    apply {
        front = 0;
        headers_length.apply();
    }
}

// Whether the transport header, which must end within the datagram, and what UDP says of its own
// length do: `cut` and `outside` are false and 0 where they do.
control Intact(in headers_t hdr, in bit<16> front, in bit<16> datagram, out bool cut,
               out bit<16> outside) {
    bit<16> reach;
    bit<16> bound;

    action of_tcp() {
        reach = 10w0 ++ hdr.tcp.flags[15:12] ++ 2w0;
        bound = datagram |+| 24;
    }

    action of_udp() {
        reach = hdr.udp.length;
        bound = datagram |+| 12;
    }

    action lengthen() {
        reach = reach |+| front;
    }

    action compare() {
        outside = reach |-| bound;
    }

    action cut_off() {
        cut = true;
    }

    // Headers that are shorter than they can be.
    table offsets {
        key = { hdr.tcp.isValid() : exact; hdr.tcp.flags[15:12] : ternary;
                hdr.udp.length[15:3] : ternary; }
        actions = { cut_off; NoAction; }
        const default_action = NoAction;
        const entries = {
            (true, 0 &&& 0xC, 0 &&& 0) : cut_off();
            (true, 4, 0 &&& 0) : cut_off();
            (false, 0 &&& 0, 0) : cut_off();
        }
        size = 4;
    }

    apply {
        cut = false;
        reach = 0;
        bound = 0;
        if (hdr.tcp.isValid()) {
            of_tcp();
        } else {
            of_udp();
        }
        offsets.apply();
        lengthen();
        compare();
    }
}
