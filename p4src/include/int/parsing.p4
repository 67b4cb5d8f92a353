// States of HeaderParser, where a program defines TELEMETRY: what is behind the ports of TCP and
// UDP where the ToS byte says that a stack is there, and the two headers of INT-MD. IPv6 is followed
// where TCP or UDP is its next header.
//
// What turns out to be no stack is sent as it was extracted.

    state behind_ports {
        meta.readable = true;
        transition select(hdr.ipv4.tos_rest, hdr.ipv4.flags, hdr.ipv4.protocol) {
            (0x10 &&& 0x10, 0 &&& 1, PROTOCOL_TCP) : tcp;
            (0x10 &&& 0x10, 0 &&& 1, PROTOCOL_UDP) : udp;
            default : accept;
        }
    }

    state tcp6 {
        pkt.extract(hdr.ports);
        transition tcp;
    }

    state udp6 {
        pkt.extract(hdr.ports);
        transition udp;
    }

    state tcp {
        pkt.extract(hdr.tcp);
        transition shim;
    }

    state udp {
        pkt.extract(hdr.udp);
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
        transition accept;
    }
