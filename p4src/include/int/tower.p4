// How many packets each flow has that leave for hosts: a TowerSketch of three arrays, of counters
// of 8, 16 and 32 bits (section IV-B of the SketchINT paper). Each register holds both groups, the
// second behind the first. A packet raises all of its counters (CM), and one at its maximum stays.

// Counters of one group.
const bit<32> TOWER_8 = 1 << 16;
const bit<32> TOWER_16 = 1 << 15;
const bit<32> TOWER_32 = 1 << 14;

// A counter of an array, with its group.
typedef bit<17> counter_t;

control Tower8(in access_t access, in counter_t at, inout bit<8> count) {
    Register<bit<8>, counter_t>(2 * TOWER_8, 0) counters;
    RegisterAction<bit<8>, counter_t, bit<8>>(counters) touch = {
        void apply(inout bit<8> value, out bit<8> rv) {
            if (access == RECORD) {
                value = value |+| 1;
            } else if (access == CLEAR) {
                value = 0;
            }
            rv = value;
        }
    };

    apply {
        if (access != NOTHING) {
            count = touch.execute(at);
        }
    }
}

control Tower16(in access_t access, in counter_t at, inout bit<16> count) {
    Register<bit<16>, counter_t>(2 * TOWER_16, 0) counters;
    RegisterAction<bit<16>, counter_t, bit<16>>(counters) touch = {
        void apply(inout bit<16> value, out bit<16> rv) {
            if (access == RECORD) {
                value = value |+| 1;
            } else if (access == CLEAR) {
                value = 0;
            }
            rv = value;
        }
    };

    apply {
        if (access != NOTHING) {
            count = touch.execute(at);
        }
    }
}

control Tower32(in access_t access, in counter_t at, inout bit<32> count) {
    Register<bit<32>, counter_t>(2 * TOWER_32, 0) counters;
    RegisterAction<bit<32>, counter_t, bit<32>>(counters) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
            if (access == RECORD) {
                value = value |+| 1;
            } else if (access == CLEAR) {
                value = 0;
            }
            rv = value;
        }
    };

    apply {
        if (access != NOTHING) {
            count = touch.execute(at);
        }
    }
}

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

// Counts a packet in all arrays, or gives a collection packet a counter. Each word has as many bits
// as its array's indexes.
control Tower(in towers_t request, in word_t word8, in word_t word16, in word_t word32,
              out sizes_t sizes, inout record_h record) {
    Tower8() level8;
    Tower16() level16;
    Tower32() level32;
    counter_t at8;
    counter_t at16;
    counter_t at32;

    action places() {
        at8 = request.group ++ word8;
        at16 = 1w0 ++ request.group ++ word16[14:0];
        at32 = 2w0 ++ request.group ++ word32[13:0];
    }

    apply {
        sizes = { 0, 0, 0 };
        places();
        level8.apply(request.of_8, at8, sizes.of_8);
        level16.apply(request.of_16, at16, sizes.of_16);
        level32.apply(request.of_32, at32, sizes.of_32);
        if (request.of_8 == READ) {
            record = { 24w0 ++ sizes.of_8 };
        } else if (request.of_16 == READ) {
            record = { 16w0 ++ sizes.of_16 };
        } else if (request.of_32 == READ) {
            record = { sizes.of_32 };
        }
    }
}
