// Latencies that are inflated: more than so many times the mean of the flow's packets at that switch
// before it, as far as the pair towers know it (section IV-C of the SketchINT paper). Each packet
// with any has a notice for the CPU (notices.p4), which names two of them; the number is that of its
// sum of what became of packets, which is cleared with the window.

// Whether notices may be sent of packets of a group, up to which number, and by which session. A
// copy is made of each packet, and dropped on its own way through the egress where its number is
// higher: the packet itself would have to know its number a stage earlier.
control InflationNotices(in bit<8> stream, out bit<32> end, out MirrorId_t session) {
    action allow(bit<32> up_to, MirrorId_t by) {
        end = up_to;
        session = by;
    }

    table budgets {
        key = { stream : exact; }
        actions = { allow; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    apply {
        end = 0;
        session = 0;
        budgets.apply();
    }
}

// Writes into a notice where a packet's latency is inflated, and of the first and the last of
// these places what it met there.
control Inflations(in bit<6> places, in met_t met, inout notice_h notice) {
    action first_at0() { notice.first_node = met.node0; notice.first_latency = met.latency0; }
    action first_at1() { notice.first_node = met.node1; notice.first_latency = met.latency1; }
    action first_at2() { notice.first_node = met.node2; notice.first_latency = met.latency2; }
    action first_at3() { notice.first_node = met.node3; notice.first_latency = met.latency3; }
    action first_at4() { notice.first_node = met.node4; notice.first_latency = met.latency4; }
    action first_at_own() { notice.first_node = met.own; notice.first_latency = met.latency; }
    action last_at0() { notice.last_node = met.node0; notice.last_latency = met.latency0; }
    action last_at1() { notice.last_node = met.node1; notice.last_latency = met.latency1; }
    action last_at2() { notice.last_node = met.node2; notice.last_latency = met.latency2; }
    action last_at3() { notice.last_node = met.node3; notice.last_latency = met.latency3; }
    action last_at4() { notice.last_node = met.node4; notice.last_latency = met.latency4; }
    action last_at_own() { notice.last_node = met.own; notice.last_latency = met.latency; }

    table first_place {
        key = { places : ternary; }
        actions = { first_at0; first_at1; first_at2; first_at3; first_at4; first_at_own; NoAction; }
        const default_action = NoAction;
        const entries = {
            0x20 &&& 0x20 : first_at0();
            0x10 &&& 0x10 : first_at1();
            0x08 &&& 0x08 : first_at2();
            0x04 &&& 0x04 : first_at3();
            0x02 &&& 0x02 : first_at4();
            0x01 &&& 0x01 : first_at_own();
        }
        size = 8;
    }

    table last_place {
        key = { places : ternary; }
        actions = { last_at0; last_at1; last_at2; last_at3; last_at4; last_at_own; NoAction; }
        const default_action = NoAction;
        const entries = {
            0x01 &&& 0x01 : last_at_own();
            0x02 &&& 0x02 : last_at4();
            0x04 &&& 0x04 : last_at3();
            0x08 &&& 0x08 : last_at2();
            0x10 &&& 0x10 : last_at1();
            0x20 &&& 0x20 : last_at0();
        }
        size = 8;
    }

    apply {
        first_place.apply();
        last_place.apply();
    }
}
