// Where packets begin and end at an edge.

// Whether a packet leaves for a host, and which bit it then has in the place of a claim. A packet
// that is dropped leaves for none.
control Leaves(in PortId_t port, in bit<3> drop_ctl, out bit<1> to_host, out bit<1> given) {
    action host(bit<1> claim) {
        to_host = 1;
        given = claim;
    }

    table ports {
        key = { port : exact; }
        actions = { host; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    apply {
        to_host = 0;
        given = 0;
        if (drop_ctl == 0) {
            ports.apply();
        }
    }
}
