// A column of the table: one place of every row, the better one of a row in the column before.
//
// Each register is accessed once on a pass: first the standing, which says whether what moves takes
// this place, then the words of the flow, then its counts. So a column takes two stages, the counts
// lying beside the next one's standings.

// How the flows in this column stand.
control Standings(in access_t access, in index_t index, in bit<32> own, out bit<32> there) {
    Register<bit<32>, index_t>(2 * ROWS, 0) words;
    RegisterAction<bit<32>, index_t, bit<32>>(words) read = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(words) exchange = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            value = own;
        }
    };
    // A flow goes before worse ones and behind its equals. Who stays says so.
    RegisterAction<bit<32>, index_t, bit<32>>(words) seek = {
        void apply(inout bit<32> value, out bit<32> rv) {
            if (value < own) {
                rv = value | 0;
                value = own;
            } else {
                rv = value | STAYS;
            }
        }
    };

    apply {
        there = 0;
        if (access == SEEK) {
            there = seek.execute(index);
        } else if (access == SHIFT || access == CLEAR) {
            there = exchange.execute(index);
        } else if (access != NOTHING) {
            there = read.execute(index);
        }
    }
}

// A word of the flows in this column.
control FlowWords(in access_t access, in index_t index, in bit<32> own, out bit<32> there,
                  out bit<1> same) {
    Register<bit<32>, index_t>(2 * ROWS, 0) words;
    RegisterAction<bit<32>, index_t, bit<32>>(words) read = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(words) exchange = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            value = own;
        }
    };
    RegisterAction<bit<32>, index_t, bit<1>>(words) compare = {
        void apply(inout bit<32> value, out bit<1> rv) {
            rv = 0;
            if (value == own) {
                rv = 1;
            }
        }
    };

    apply {
        there = 0;
        same = 0;
        if (access == RECORD || access == SEEK) {
            same = compare.execute(index);
        } else if (access == SHIFT || access == CLEAR) {
            there = exchange.execute(index);
        } else if (access == READ) {
            there = read.execute(index);
        }
    }
}

// A sum over the packets of the flows in this column: modulo 2^32, or up to the largest number.
control Sums(in access_t access, in index_t index, in bit<32> own, out bit<32> there)
            (bool saturates) {
    Register<bit<32>, index_t>(2 * ROWS, 0) words;
    RegisterAction<bit<32>, index_t, bit<32>>(words) read = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(words) exchange = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            value = own;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(words) add = {
        void apply(inout bit<32> value) {
            value = value + own;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(words) add_up = {
        void apply(inout bit<32> value) {
            value = value |+| own;
        }
    };

    apply {
        there = 0;
        if (access == RECORD) {
            if (saturates) {
                add_up.execute(index);
            } else {
                add.execute(index);
            }
        } else if (access == SHIFT || access == CLEAR) {
            there = exchange.execute(index);
        } else if (access == READ) {
            there = read.execute(index);
        }
    }
}

// What a packet does to its place in this column. `moving` is the packet's own flow, and once that
// has a place, what had to go for it; `found` says where the packet is counted. `next` is what it
// does in the column behind.
control Column(in access_t access, in index_t index, inout entry_t moving, inout access_t next,
               inout entry_t there, inout bit<1> found, inout bit<1> placed) {
    Standings() standing;
    FlowWords() src;
    FlowWords() dst;
    FlowWords() ports;
    FlowWords() rest;
    Sums(true) packets;
    Sums(false) bytes;
    Sums(true) sixteenths;
    access_t words;
    access_t counts;
    bit<1> same_src;
    bit<1> same_dst;
    bit<1> same_ports;
    bit<1> same_rest;

    action take_along() {
        moving = there;
    }

    apply {
        words = access;
        if (access != NOTHING) {
            standing.apply(access, index, moving.standing, there.standing);
        }
        if (access == SEEK && there.standing[31:31] == 0) {
            words = SHIFT;
            placed = 1;
        }
        counts = words;
        if (words == SEEK || words == RECORD) {
            counts = NOTHING;
        }
        if (words != NOTHING) {
            src.apply(words, index, moving.src, there.src, same_src);
            dst.apply(words, index, moving.dst, there.dst, same_dst);
            ports.apply(words, index, moving.ports, there.ports, same_ports);
            rest.apply(words, index, moving.rest, there.rest, same_rest);
            if (same_src == 1 && same_dst == 1 && same_ports == 1 && same_rest == 1) {
                counts = RECORD;
                found = 1;
            }
        }
        if (counts != NOTHING) {
            packets.apply(counts, index, moving.packets, there.packets);
            bytes.apply(counts, index, moving.bytes, there.bytes);
            sixteenths.apply(counts, index, moving.sixteenths, there.sixteenths);
        }
        if (words == RECORD || words == SEEK) {
            if (found == 0) {
                next = words;
            }
        } else if (words == SHIFT) {
            take_along();
            if (there.standing != 0) {
                next = SHIFT;
            }
        }
    }
}
