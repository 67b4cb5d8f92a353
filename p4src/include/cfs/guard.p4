// Loops of flows, by the times to live that their packets come with: which packets the CPU gets a
// notice of. The CPU, which gets whole keys, judges what a flow's times to live are worth; here
// flows may be mistaken for each other, and that costs a notice or a reset, and is never believed.
//
// A cell remembers the last flow of a window that hashed to it by a fingerprint, the highest time
// to live of its packets, and by how much less others came than with that. A flow with three times
// to live at equal distances, of two to twelve hops, is suspected, and from then on each of its
// times to live is said once.
//
// Cells are never read or cleared: the fingerprint has the lower half of the window's number, so
// that of no window but the one 65,536 before a cell has this one's.

#ifndef CELL_BITS
#define CELL_BITS 16
#endif
const bit<32> CELLS = 1 << CELL_BITS;

// A cell's index, from a word of hash.
#if CELL_BITS < 16
#define CELL(word) (bit<16>)(word[CELL_BITS - 1:0])
#else
#define CELL(word) word
#endif

struct cell_t {
    bit<32> fingerprint;
    bit<32> ttl;
}

// The highest time to live so far of the cell's flow; 0 where the cell had another one.
control Lives(in bit<16> cell, in bit<32> fingerprint, in bit<32> ttl, out bit<32> before) {
    Register<cell_t, bit<16>>(CELLS, { 0, 0 }) highest;
    RegisterAction<cell_t, bit<16>, bit<32>>(highest) see = {
        void apply(inout cell_t value, out bit<32> rv) {
            rv = 0;
            if (value.fingerprint == fingerprint) {
                rv = value.ttl;
            }
            if (value.fingerprint != fingerprint || value.ttl < ttl) {
                value.ttl = ttl;
            }
            value.fingerprint = fingerprint;
        }
    };

    apply {
        before = see.execute(cell);
    }
}

// By how much less than the highest packets came, up to 31: a bit for each.
control Fallen(in bit<16> cell, in bool is_new, in bit<32> by, out bit<32> all) {
    Register<bit<32>, bit<16>>(CELLS, 0) differences;
    RegisterAction<bit<32>, bit<16>, bit<32>>(differences) add = {
        void apply(inout bit<32> value, out bit<32> rv) {
            value = value | by;
            rv = value;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(differences) forget = {
        void apply(inout bit<32> value, out bit<32> rv) {
            value = 0;
            rv = 0;
        }
    };

    apply {
        if (is_new) {
            all = forget.execute(cell);
        } else {
            all = add.execute(cell);
        }
    }
}

// Which times to live were said: a bit of two of the four words for each difference from the
// highest. `there` is what the word was that the packet has to do with, if that is one of the two.
control Said(in bit<16> cell, in bool is_new, in bool says, in bit<2> word, in bit<32> one,
             inout bit<32> there)(bit<2> first, bit<2> second) {
    Register<words_t, bit<16>>(CELLS, { 0, 0 }) differences;
    RegisterAction<words_t, bit<16>, bit<32>>(differences) say_first = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.first;
            value.first = value.first | one;
        }
    };
    RegisterAction<words_t, bit<16>, bit<32>>(differences) say_second = {
        void apply(inout words_t value, out bit<32> rv) {
            rv = value.second;
            value.second = value.second | one;
        }
    };
    RegisterAction<words_t, bit<16>, bit<32>>(differences) forget = {
        void apply(inout words_t value) {
            value.first = 0;
            value.second = 0;
        }
    };

    apply {
        if (is_new) {
            forget.execute(cell);
        } else if (says && word == first) {
            there = say_first.execute(cell);
        } else if (says && word == second) {
            there = say_second.execute(cell);
        }
    }
}

// A difference from the highest: its bit, in which of four words that is, and the same bit again
// where it is one of those up to 31.
#define NEAR(n) n : differ(1 << n, 0, 1 << n);
#define LATER(word, n) 32 * word + n : differ(1 << n, word, 0);
#define WORD(word) LATER(word, 0) LATER(word, 1) LATER(word, 2) LATER(word, 3) LATER(word, 4) \
    LATER(word, 5) LATER(word, 6) LATER(word, 7) LATER(word, 8) LATER(word, 9) LATER(word, 10) \
    LATER(word, 11) LATER(word, 12) LATER(word, 13) LATER(word, 14) LATER(word, 15) \
    LATER(word, 16) LATER(word, 17) LATER(word, 18) LATER(word, 19) LATER(word, 20) \
    LATER(word, 21) LATER(word, 22) LATER(word, 23) LATER(word, 24) LATER(word, 25) \
    LATER(word, 26) LATER(word, 27) LATER(word, 28) LATER(word, 29) LATER(word, 30) \
    LATER(word, 31)

// A flow is suspected if the smallest difference is this one, and twice as much is there, too.
#define EQUAL(n) ((1 << n | 1 << 2 * n) &&& (((2 << n) - 2) | 1 << 2 * n)) : suspect();

control Guard(in headers_t hdr, inout metadata_t meta,
              inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Lives() lives;
    Fallen() fallen;
    Said(0, 1) said;
    Said(2, 3) said_beyond;
    Notices(2) notices;
    bit<32> before;
    bit<32> above;
    bit<32> steps;
    bit<32> one;
    bit<2> word;
    bit<32> near;
    bit<32> all;
    bit<32> there;
    bit<32> left;
    bit<32> number;
    bool is_new;
    bool is_suspect;
    bool is_sent;

    // A condition can't compute.
    action compare() {
        above = hdr.bridge.ttl |-| before;
        steps = before |-| hdr.bridge.ttl;
    }

    action differ(bit<32> bit_there, bit<2> in_word, bit<32> bit_near) {
        one = bit_there;
        word = in_word;
        near = bit_near;
    }

    // The highest itself is not said, nor anything of a flow with a difference of 1; the bit of a
    // difference of 0 is that of all beyond 127.
    table differences {
        key = { steps : exact; }
        actions = { differ; }
        const default_action = differ(1, 0, 0);
        const entries = {
            0 : differ(0, 0, 0);
            1 : differ(0, 0, 2);
            NEAR(2) NEAR(3) NEAR(4) NEAR(5) NEAR(6) NEAR(7) NEAR(8) NEAR(9) NEAR(10) NEAR(11)
            NEAR(12) NEAR(13) NEAR(14) NEAR(15) NEAR(16) NEAR(17) NEAR(18) NEAR(19) NEAR(20)
            NEAR(21) NEAR(22) NEAR(23) NEAR(24) NEAR(25) NEAR(26) NEAR(27) NEAR(28) NEAR(29)
            NEAR(30) NEAR(31)
            WORD(1)
            WORD(2)
            WORD(3)
        }
        size = 128;
    }

    action suspect() {
        is_suspect = true;
    }

    table suspicious {
        key = { all : ternary; }
        actions = { suspect; NoAction; }
        const default_action = NoAction;
        const entries = {
            EQUAL(2) EQUAL(3) EQUAL(4) EQUAL(5) EQUAL(6) EQUAL(7) EQUAL(8) EQUAL(9) EQUAL(10)
            EQUAL(11) EQUAL(12)
        }
        size = 11;
    }

    action left_over() {
        left = one & ~there;
    }

    action note() {
        eg_dprsr_md.mirror_type = NOTICE_MIRROR;
        meta.notice.setValid();
        meta.notice.kind = NOTICE;
        meta.notice.stream = 7w0 ++ hdr.bridge.fingerprint[0:0];
        meta.notice.number = number;
        meta.notice.src = hdr.ipv4.src;
        meta.notice.dst = hdr.ipv4.dst;
        meta.notice.ports = meta.ports;
        meta.notice.protocol = hdr.ipv4.protocol;
        meta.notice.ttl = hdr.bridge.ttl[7:0];
    }

    apply {
        is_suspect = false;
        is_new = false;
        is_sent = false;
        lives.apply(hdr.bridge.cell, hdr.bridge.fingerprint, hdr.bridge.ttl,
                    before);
        compare();
        // Every packet has a time to live, so one that is alone has one above none.
        if (above != 0) {
            is_new = true;
        }
        differences.apply();
        fallen.apply(hdr.bridge.cell, is_new, near, all);
        suspicious.apply();
        there = 0;
        said.apply(hdr.bridge.cell, is_new, is_suspect, word, one, there);
        said_beyond.apply(hdr.bridge.cell, is_new, is_suspect, word, one, there);
        left_over();
        if (is_suspect && left != 0) {
            notices.apply(7w0 ++ hdr.bridge.fingerprint[0:0], number, meta.session, is_sent);
        }
        if (is_sent) {
            note();
        }
    }
}
