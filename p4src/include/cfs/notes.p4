// What is noted beside the table: flows that were refused or evicted, flows whose packets are
// between their two passes, and flows whose counts may lack a packet.

// A bit for some flows each. `before` is what it was.
control Bits(in access_t access, in index_t index, out bit<1> before)(bit<32> size) {
    Register<bit<1>, index_t>(size, 0) bits;
    RegisterAction<bit<1>, index_t, bit<1>>(bits) read = {
        void apply(inout bit<1> value, out bit<1> rv) {
            rv = value;
        }
    };
    RegisterAction<bit<1>, index_t, bit<1>>(bits) set = {
        void apply(inout bit<1> value, out bit<1> rv) {
            rv = value;
            value = 1;
        }
    };
    RegisterAction<bit<1>, index_t, bit<1>>(bits) clear = {
        void apply(inout bit<1> value, out bit<1> rv) {
            rv = value;
            value = 0;
        }
    };

    apply {
        before = 0;
        if (access == RECORD) {
            before = set.execute(index);
        } else if (access == CLEAR) {
            before = clear.execute(index);
        } else if (access == READ) {
            before = read.execute(index);
        }
    }
}

// What makes the counts of some flows each doubtful, a bit for each kind. `there` is what it was.
control Kinds(in access_t access, in index_t index, in bit<8> more, out bit<8> there) {
    Register<bit<8>, index_t>(2 * PENDING, 0) kinds;
    RegisterAction<bit<8>, index_t, bit<8>>(kinds) touch = {
        void apply(inout bit<8> value, out bit<8> rv) {
            rv = value;
            if (access == CLEAR) {
                value = 0;
            } else {
                value = value | more;
            }
        }
    };

    apply {
        there = 0;
        if (access != NOTHING) {
            there = touch.execute(index);
        }
    }
}

// Packets that were resubmitted and have not come again, of some flows each. `before` is how many
// there were.
control Pending(in access_t access, in index_t index, in bit<16> more, out bit<16> before) {
    Register<bit<16>, index_t>(2 * PENDING, 0) packets;
    RegisterAction<bit<16>, index_t, bit<16>>(packets) move = {
        void apply(inout bit<16> value, out bit<16> rv) {
            rv = value;
            value = value + more;
        }
    };
    RegisterAction<bit<16>, index_t, bit<16>>(packets) clear = {
        void apply(inout bit<16> value, out bit<16> rv) {
            rv = value;
            value = 0;
        }
    };

    apply {
        before = 0;
        if (access == RECORD) {
            before = move.execute(index);
        } else if (access == CLEAR) {
            before = clear.execute(index);
        }
    }
}

// The longest run of zeros of the flows that fall on a register: how many flows there are in all
// (HyperLogLog).
control Runs(in access_t access, in index_t index, in bit<8> run, out bit<8> there) {
    Register<bit<8>, index_t>(2 * RUNS, 0) runs;
    RegisterAction<bit<8>, index_t, bit<8>>(runs) touch = {
        void apply(inout bit<8> value, out bit<8> rv) {
            rv = value;
            if (access == CLEAR) {
                value = 0;
            } else if (value < run) {
                value = run;
            }
        }
    };

    apply {
        there = 0;
        if (access != NOTHING) {
            there = touch.execute(index);
        }
    }
}

// Sums over packets, up to the largest number.
control Totals(in access_t access, in index_t index, in bit<32> more, out bit<32> there)
              (bit<32> size) {
    Register<bit<32>, index_t>(size, 0) sums;
    RegisterAction<bit<32>, index_t, bit<32>>(sums) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            if (access == RECORD) {
                value = value |+| more;
            } else if (access == CLEAR) {
                value = 0;
            }
        }
    };

    apply {
        there = 0;
        if (access != NOTHING) {
            there = touch.execute(index);
        }
    }
}
