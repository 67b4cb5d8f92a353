// From the flow's size to its mark and to the part of the encoder that it goes to: the thresholds,
// the sampling and the division of memory of the epoch. All tables are keyed by the timestamp bit,
// so that a reconfiguration fills those of the next epoch only.
//
// A flow is at least of some size where both of its counters are, a counter at its maximum being
// infinite. So each counter finds its own level, and their minimum is never computed: one table with
// ranges of both would need more rows for an entry than a TCAM can join.

typedef bit<2> level_t;  // 0 below T_l, 1 from T_l on, 2 from T_h on

control Hierarchy(in bit<1> timestamp, in bit<8> count8, in bit<16> count16, in hashes_t hashes,
                  inout mark_t mark, inout words_t masked, inout request_t request) {
    level_t narrow_level;
    level_t wide_level;

    action narrow_from(level_t level) {
        narrow_level = level;
    }

    table narrow {
        key = { timestamp : exact; count8 : range; }
        actions = { narrow_from; }
        const default_action = narrow_from(0);
        size = 4;
    }

    action wide_from(level_t level) {
        wide_level = level;
    }

    table wide {
        key = { timestamp : exact; count16 : range; }
        actions = { wide_from; }
        const default_action = wide_from(0);
        size = 4;
    }

    action light() {}

    // A part without buckets in the epoch encodes nothing.
    action unencoded(hierarchy_t hierarchy) {
        mark[1:0] = hierarchy;
    }

    action encoded(hierarchy_t hierarchy, word_t mask) {
        mark[1:0] = hierarchy;
        masked.word0 = hashes.word0 & mask;
        masked.word1 = hashes.word1 & mask;
        masked.word2 = hashes.word2 & mask;
        request.array0 = RECORD;
        request.array1 = RECORD;
        request.array2 = RECORD;
    }

    table classes {
        key = {
            timestamp : exact;
            narrow_level : exact;
            wide_level : exact;
            hashes.sampled : exact;
        }
        actions = { encoded; unencoded; light; }
        const default_action = light;
        size = 32;
    }

    apply {
        narrow.apply();
        wide.apply();
        classes.apply();
    }
}
