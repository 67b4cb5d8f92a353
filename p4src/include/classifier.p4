// The flow classifier: a TowerSketch of an array of 8-bit and one of 16-bit counters. Each register
// holds both groups, that of timestamp bit 1 behind that of bit 0.
//
// A counter at its maximum stands for infinity.

control Counters8(in bit<1> group, in word_t word, out bit<8> count) {
    Register<bit<8>, bit<32>>(2 * CLASSIFIER_8, 0) counters;
    RegisterAction<bit<8>, bit<32>, bit<8>>(counters) insert = {
        void apply(inout bit<8> value, out bit<8> rv) {
            value = value |+| 1;
            rv = value;
        }
    };

    apply {
        count = insert.execute((bit<32>)(group ++ word[CLASSIFIER_8_BITS - 1:0]));
    }
}

control Counters16(in bit<1> group, in word_t word, out bit<16> count) {
    Register<bit<16>, bit<32>>(2 * CLASSIFIER_16, 0) counters;
    RegisterAction<bit<16>, bit<32>, bit<16>>(counters) insert = {
        void apply(inout bit<16> value, out bit<16> rv) {
            value = value |+| 1;
            rv = value;
        }
    };

    apply {
        count = insert.execute((bit<32>)(group ++ word[CLASSIFIER_16_BITS - 1:0]));
    }
}

// Counts the packet and gives the flow's size so far.
control Classifier(in bit<1> group, in hashes_t hashes, out bit<16> size) {
    Counters8() level0;
    Counters16() level1;
    bit<8> count8;
    bit<16> count16;

    apply {
        level0.apply(group, hashes.level0, count8);
        level1.apply(group, hashes.level1, count16);
        if (count8 == 0xFF) {
            size = count16;
        } else {
            size = min((bit<16>)count8, count16);
        }
    }
}
