// From the flow's size to its mark and to the part of the encoder that it goes to: the thresholds,
// the sampling and the division of memory of the epoch. All tables are keyed by the timestamp bit,
// so that a reconfiguration fills those of the next epoch only.
//
// A flow is at least of some size where both of its counters are, a counter at its maximum being
// infinite: so the counters themselves are matched, and their minimum is never computed.

control Hierarchy(in bit<1> timestamp, in bit<8> count8, in bit<16> count16, in hashes_t hashes,
                  inout mark_t mark, inout words_t masked, inout request_t request) {
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

    table thresholds {
        key = { timestamp : exact; count8 : range; count16 : range; hashes.sample : range; }
        actions = { encoded; unencoded; light; }
        const default_action = light;
        size = 16;
    }

    apply {
        thresholds.apply();
    }
}
