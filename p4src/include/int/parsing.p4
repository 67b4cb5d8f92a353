// States of HeaderParser, where a program defines TELEMETRY: what is behind the ports of TCP and
// UDP, and where the ToS byte says that a stack is there, the two headers of INT-MD. IPv6 is followed
// where TCP or UDP is its next header.
//
// What turns out to be no stack is sent as it was extracted.

    state behind_ports {
        meta.readable = true;
        transition select(hdr.ipv4.tos_rest, hdr.ipv4.flags, hdr.ipv4.protocol) {
            (0x10 &&& 0x10, 0 &&& 0, PROTOCOL_TCP) : tcp;
            (0x10 &&& 0x10, 0 &&& 0, PROTOCOL_UDP) : udp;
            (0 &&& 0x10, 0 &&& 1, PROTOCOL_TCP) : plain_tcp;
            (0 &&& 0x10, 0 &&& 1, PROTOCOL_UDP) : plain_udp;
            default : accept;
        }
    }

    state tcp6 {
        pkt.extract(hdr.ports);
        meta.ports = hdr.ports.both;
        meta.readable6 = true;
        transition tcp;
    }

    state udp6 {
        pkt.extract(hdr.ports);
        meta.ports = hdr.ports.both;
        meta.readable6 = true;
        transition udp;
    }

    state plain_tcp6 {
        pkt.extract(hdr.ports);
        meta.ports = hdr.ports.both;
        meta.readable6 = true;
        transition plain_tcp;
    }

    state plain_udp6 {
        pkt.extract(hdr.ports);
        meta.ports = hdr.ports.both;
        meta.readable6 = true;
        transition plain_udp;
    }

#ifndef ROLE_TRANSIT
    state sctp6 {
        pkt.extract(hdr.ports);
        meta.ports = hdr.ports.both;
        meta.readable6 = true;
        transition accept;
    }

    state readable6 {
        meta.readable6 = true;
        transition accept;
    }
#endif

    state plain_tcp {
        pkt.extract(hdr.tcp);
        transition accept;
    }

    state plain_udp {
        pkt.extract(hdr.udp);
        transition accept;
    }

    state tcp {
        pkt.extract(hdr.tcp);
#ifndef ROLE_TRANSIT
        taken.subtract({ hdr.tcp.checksum });
#endif
        transition shim;
    }

    state udp {
        pkt.extract(hdr.udp);
#ifndef ROLE_TRANSIT
        taken.subtract({ hdr.udp.checksum });
#endif
        transition shim;
    }

    state shim {
        pkt.extract(hdr.shim);
        transition select(hdr.shim.kind, hdr.shim.zero, hdr.shim.reserved) {
            (INT_SHIM, 0, 0) : telemetry;
            default : accept;
        }
    }

    state telemetry {
        pkt.extract(hdr.telemetry);
#ifndef ROLE_TRANSIT
        taken.subtract({ hdr.shim.kind, hdr.shim.length, hdr.shim.zero, hdr.shim.dscp,
                         hdr.shim.reserved, hdr.telemetry.version, hdr.telemetry.discard,
                         hdr.telemetry.exceeded, hdr.telemetry.too_long, hdr.telemetry.reserved,
                         hdr.telemetry.words, hdr.telemetry.left, hdr.telemetry.instructions,
                         hdr.telemetry.domain, hdr.telemetry.own_instructions,
                         hdr.telemetry.own_flags });
        transition select(meta.strips, hdr.shim.length) {
            (1, 3) : taken_out;
            (1, 5) : taken1;
            (1, 7) : taken2;
            (1, 9) : taken3;
            (1, 11) : taken4;
            (1, 13) : taken5;
            (1, 15) : taken6;
            (1, 17) : taken7;
            (1, 19) : taken8;
            (1, 21) : taken9;
            (1, 23) : taken10;
            (1, 25) : taken11;
            (1, 27) : taken12;
            (1, 29) : taken13;
            (1, 31) : taken14;
            (1, 33) : taken15;
            (1, 35) : taken16;
            default : accept;
        }
#else
        transition accept;
#endif
    }

#ifndef ROLE_TRANSIT
    // A stack that is taken out. Each state has its own element, so that none is extracted twice: n
    // hops fill the last n.
    state taken16 {
        pkt.extract(hdr.taken[0]);
        taken.subtract({ hdr.taken[0].node, hdr.taken[0].latency });
        transition taken15;
    }

    state taken15 {
        pkt.extract(hdr.taken[1]);
        taken.subtract({ hdr.taken[1].node, hdr.taken[1].latency });
        transition taken14;
    }

    state taken14 {
        pkt.extract(hdr.taken[2]);
        taken.subtract({ hdr.taken[2].node, hdr.taken[2].latency });
        transition taken13;
    }

    state taken13 {
        pkt.extract(hdr.taken[3]);
        taken.subtract({ hdr.taken[3].node, hdr.taken[3].latency });
        transition taken12;
    }

    state taken12 {
        pkt.extract(hdr.taken[4]);
        taken.subtract({ hdr.taken[4].node, hdr.taken[4].latency });
        transition taken11;
    }

    state taken11 {
        pkt.extract(hdr.taken[5]);
        taken.subtract({ hdr.taken[5].node, hdr.taken[5].latency });
        transition taken10;
    }

    state taken10 {
        pkt.extract(hdr.taken[6]);
        taken.subtract({ hdr.taken[6].node, hdr.taken[6].latency });
        transition taken9;
    }

    state taken9 {
        pkt.extract(hdr.taken[7]);
        taken.subtract({ hdr.taken[7].node, hdr.taken[7].latency });
        transition taken8;
    }

    state taken8 {
        pkt.extract(hdr.taken[8]);
        taken.subtract({ hdr.taken[8].node, hdr.taken[8].latency });
        transition taken7;
    }

    state taken7 {
        pkt.extract(hdr.taken[9]);
        taken.subtract({ hdr.taken[9].node, hdr.taken[9].latency });
        transition taken6;
    }

    state taken6 {
        pkt.extract(hdr.taken[10]);
        taken.subtract({ hdr.taken[10].node, hdr.taken[10].latency });
        transition taken5;
    }

    state taken5 {
        pkt.extract(hdr.taken[11]);
        taken.subtract({ hdr.taken[11].node, hdr.taken[11].latency });
        transition taken4;
    }

    state taken4 {
        pkt.extract(hdr.taken[12]);
        taken.subtract({ hdr.taken[12].node, hdr.taken[12].latency });
        transition taken3;
    }

    state taken3 {
        pkt.extract(hdr.taken[13]);
        taken.subtract({ hdr.taken[13].node, hdr.taken[13].latency });
        transition taken2;
    }

    state taken2 {
        pkt.extract(hdr.taken[14]);
        taken.subtract({ hdr.taken[14].node, hdr.taken[14].latency });
        transition taken1;
    }

    state taken1 {
        pkt.extract(hdr.taken[15]);
        taken.subtract({ hdr.taken[15].node, hdr.taken[15].latency });
        transition taken_out;
    }

    state taken_out {
        meta.taken = taken.get();
        transition accept;
    }
#endif
