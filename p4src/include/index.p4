// From hash words to buckets: (word AND mask) mod len, in the part of the encoder that the
// hierarchy names, in the group of the timestamp bit.
//
// The mask keeps the word below eight times the part's length; a range table then adds what leads
// to the bucket: minus a multiple of the length, plus the part's offset, plus the group's.

control Modulo(in bit<1> timestamp, in hierarchy_t hierarchy, in word_t word, out index_t index) {
    action move(index_t by) {
        index = word + by;
    }

    table ranges {
        key = { timestamp : exact; hierarchy : exact; word : range; }
        actions = { move; }
        size = 48;
    }

    apply {
        ranges.apply();
    }
}

control PartIndex(in bit<1> timestamp, in hierarchy_t hierarchy,
                  in word_t word0, in word_t word1, in word_t word2,
                  out bool found, out index_t index0, out index_t index1, out index_t index2) {
    Modulo() modulo0;
    Modulo() modulo1;
    Modulo() modulo2;
    word_t masked0;
    word_t masked1;
    word_t masked2;

    action keep(word_t mask) {
        masked0 = word0 & mask;
        masked1 = word1 & mask;
        masked2 = word2 & mask;
    }

    // Hierarchies without buckets in the epoch have no entry.
    table masks {
        key = { timestamp : exact; hierarchy : exact; }
        actions = { keep; NoAction; }
        const default_action = NoAction;
        size = 6;
    }

    apply {
        found = masks.apply().hit;
        modulo0.apply(timestamp, hierarchy, masked0, index0);
        modulo1.apply(timestamp, hierarchy, masked1, index1);
        modulo2.apply(timestamp, hierarchy, masked2, index2);
    }
}
