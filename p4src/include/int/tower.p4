// How many packets each flow has that leave for hosts: a TowerSketch of three arrays, of counters
// of 8, 16 and 32 bits (section IV-B of the SketchINT paper). Each register holds both groups, the
// second behind the first. A counter at its maximum stays. Which ones a packet raises, the file
// says that a program includes behind this one: tower_cm.p4 or tower_acu.p4.

// A counter of an array, with its group.
typedef bit<17> counter_t;

// What a packet does to the arrays, and in which group.
struct towers_t {
    access_t of_8;
    access_t of_16;
    access_t of_32;
    bit<1> group;
}

// Which array of which group a collection packet means: a group of 2^16 counters is all that its
// elements can name.
control TowerRequest(in collect_h collect, inout towers_t request) {
    action array8(bit<1> group) {
        request.of_8 = collect.access;
        request.group = group;
    }

    action array16(bit<1> group) {
        request.of_16 = collect.access;
        request.group = group;
    }

    action array32(bit<1> group) {
        request.of_32 = collect.access;
        request.group = group;
    }

    table sources {
        key = { collect.source : exact; }
        actions = { array8; array16; array32; NoAction; }
        const default_action = NoAction;
        const entries = {
            0 : array8(0);
            1 : array8(1);
            2 : array16(0);
            3 : array16(1);
            4 : array32(0);
            5 : array32(1);
        }
        size = 6;
    }

    apply {
        sources.apply();
    }
}

// What a packet's counters are now; 0 where it does nothing.
struct sizes_t {
    bit<8> of_8;
    bit<16> of_16;
    bit<32> of_32;
}
