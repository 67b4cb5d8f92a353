// A column of the table: a place of every row.
//
// Each register is accessed once on a pass: first the standing, which says whether the packet's
// flow takes this place, then the words of the flow, then its counts. Columns ask each other for
// little, so that the next one's standings lie beside this one's words. A stateful ALU gives one
// word, so of two in one register collection packets take the second one along on another pass.

struct words_t {
    bit<32> first;
    bit<32> second;
}

// How the flows in this column stand.
control Standings(in access_t access, in index_t index, in bit<32> own, out bit<32> there) {
    Register<bit<32>, index_t>(2 * ROWS, 0) words;
    RegisterAction<bit<32>, index_t, bit<32>>(words) read = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(words) clear = {
        void apply(inout bit<32> value) {
            value = 0;
        }
    };
    // A flow takes the place of a worse one. Who stays says so.
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
    // A flow takes a free place. Who stays says so, and whether it stands as that one does: its
    // entry, which another packet has made.
    RegisterAction<bit<32>, index_t, bit<32>>(words) take = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = 0;
            if (value == 0) {
                value = own;
            } else if (value == own) {
                rv = value | STAYS_ALIKE;
            } else {
                rv = value | STAYS;
            }
        }
    };

    apply {
        there = 0;
        if (access == SEEK) {
            there = seek.execute(index);
        } else if (access == TAKE) {
            there = take.execute(index);
        } else if (access == CLEAR) {
            clear.execute(index);
        } else if (access != NOTHING) {
            there = read.execute(index);
        }
    }
}

// Two words of the flows in this column: `there` is the first of them, where a packet looks for its
// flow only if both are its own.
control FlowWords(in access_t access, in index_t index, in bit<32> own_first,
                  in bit<32> own_second, out bit<32> there) {
    Register<words_t, index_t>(2 * ROWS, { 0, 0 }) words;
    RegisterAction<words_t, index_t, bit<32>>(words) compare = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = 0;
            if (value.first == own_first && value.second == own_second) {
                rv = value.first;
            }
        }
    };
    RegisterAction<words_t, index_t, bit<32>>(words) exchange = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.first;
            value.first = own_first;
            value.second = own_second;
        }
    };
    RegisterAction<words_t, index_t, bit<32>>(words) read = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.first;
        }
    };
    RegisterAction<words_t, index_t, bit<32>>(words) read_second = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.second;
        }
    };

    apply {
        there = 0;
        if (access == RECORD) {
            there = compare.execute(index);
        } else if (access == PUT || access == CLEAR) {
            there = exchange.execute(index);
        } else if (access == READ) {
            there = read.execute(index);
        } else if (access == READ_SECOND) {
            there = read_second.execute(index);
        }
    }
}

// Packets, up to the largest number, and their bytes modulo 2^32.
control Counts(in access_t access, in index_t index, in bit<32> packets, in bit<32> bytes,
               out bit<32> there) {
    Register<words_t, index_t>(2 * ROWS, { 0, 0 }) sums;
    RegisterAction<words_t, index_t, bit<32>>(sums) add = {
        void apply(inout words_t value) {
            value.first = value.first |+| packets;
            value.second = value.second + bytes;
        }
    };
    RegisterAction<words_t, index_t, bit<32>>(sums) exchange = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.first;
            value.first = packets;
            value.second = bytes;
        }
    };
    RegisterAction<words_t, index_t, bit<32>>(sums) read = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.first;
        }
    };
    RegisterAction<words_t, index_t, bit<32>>(sums) read_second = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.second;
        }
    };

    apply {
        there = 0;
        if (access == RECORD) {
            add.execute(index);
        } else if (access == PUT || access == CLEAR) {
            there = exchange.execute(index);
        } else if (access == READ) {
            there = read.execute(index);
        } else if (access == READ_SECOND) {
            there = read_second.execute(index);
        }
    }
}

// Sixteenths of bytes, of each packet whole ones, up to the largest number.
control Sixteenths(in access_t access, in index_t index, in bit<32> own, out bit<32> there) {
    Register<bit<32>, index_t>(2 * ROWS, 0) sums;
    RegisterAction<bit<32>, index_t, bit<32>>(sums) add_up = {
        void apply(inout bit<32> value) {
            value = value |+| own;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(sums) put = {
        void apply(inout bit<32> value) {
            value = own;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(sums) read = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
        }
    };

    apply {
        there = 0;
        if (access == RECORD) {
            add_up.execute(index);
        } else if (access == PUT || access == CLEAR) {
            put.execute(index);
        } else if (access == READ_SECOND) {
            there = read.execute(index);
        }
    }
}

// What a packet does to its place in this column, which stands as `there`: it is counted there
// where its flow is `found`, unless it goes `nowhere`, or takes the place, and then `gone` was
// there. One that takes a free place and finds none goes on in the `next` column.
control Column(in access_t access, in index_t index, in bit<1> nowhere, inout entry_t own,
               inout access_t next, out bit<32> there, inout bit<1> found, inout bit<1> placed,
               inout bit<32> first, inout gone_t gone, inout read_t words) {
    Standings() standing;
    FlowWords() ends;
    FlowWords() ports;
    Counts() counts;
    Sixteenths() sixteenths;
    access_t of_words;
    access_t of_counts;
    bit<32> tag;
    bit<32> note;
    bit<32> packets;
    bit<32> more;

    // The packet is counted already, where another one of its flow has come to an entry.
    action without_counts() {
        own.packets = 0;
        own.bytes = 0;
        own.sixteenths = 0;
    }

    apply {
        of_words = access;
        tag = 0;
        note = 0;
        standing.apply(access, index, own.standing, there);
        if (access == SEEK || access == TAKE) {
            of_words = RECORD;
            if (there[31:31] == 0) {
                of_words = PUT;
                placed = 1;
                gone.standing = there;
            } else if (access == TAKE && there[30:30] == 0) {
                next = TAKE;
            }
        }
        ends.apply(of_words, index, own.tag, own.dst, tag);
        ports.apply(of_words, index, own.note, own.ports, note);
        of_counts = of_words;
        if (of_words == RECORD) {
            of_counts = NOTHING;
            if (tag[31:31] == 1 && note[31:31] == 1 && found == 0) {
                found = 1;
                first = there;
                if (placed == 0 && nowhere == 0) {
                    of_counts = RECORD;
                }
            }
        } else if (of_words == PUT) {
            gone.note = note;
            if (found == 1) {
                without_counts();
            }
        }
        counts.apply(of_counts, index, own.packets, own.bytes, packets);
        sixteenths.apply(of_counts, index, own.sixteenths, more);
        if (of_words == PUT) {
            gone.packets = packets;
        } else if (access == READ) {
            words = { tag, note, packets, there };
        } else if (access == READ_SECOND) {
            words = { tag, note, packets, more };
        }
    }
}

// Which of two places has the worse flow, the first one where they are alike.
control Worse(in bit<32> one, in bit<32> other, out bit<32> standing, out bit<1> is_other) {
    bit<32> above;

    action compare() {
        above = one |-| other;
    }

    apply {
        compare();
        standing = one;
        is_other = 0;
        if (above != 0) {
            standing = other;
            is_other = 1;
        }
    }
}
