// From hash words to buckets: (word AND mask) mod len, in the part of the encoder that the
// hierarchy names, in the group of the timestamp bit.
//
// The mask keeps the word below eight times the part's length; a range table then adds what leads
// to the bucket: minus a multiple of the length, plus the part's offset, plus the group's.

struct words_t {
    word_t word0;
    word_t word1;
    word_t word2;
}

control Modulo(in mark_t mark, in word_t word, inout index_t index) {
    action move(index_t by) {
        index = word + by;
    }

    table ranges {
        key = { mark : exact; word : range; }
        actions = { move; NoAction; }
        const default_action = NoAction;
        size = 48;
    }

    apply {
        ranges.apply();
    }
}

// At egress the mark that the packet carries names the part.
control Masks(in mark_t mark, in bridge_h hashes, inout words_t masked, inout request_t request) {
    action encoded(word_t mask) {
        masked.word0 = hashes.word0 & mask;
        masked.word1 = hashes.word1 & mask;
        masked.word2 = hashes.word2 & mask;
        request.array0 = RECORD;
        request.array1 = RECORD;
        request.array2 = RECORD;
    }

    // Hierarchies without buckets in the epoch have no entry.
    table masks {
        key = { mark : exact; }
        actions = { encoded; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    apply {
        masks.apply();
    }
}
