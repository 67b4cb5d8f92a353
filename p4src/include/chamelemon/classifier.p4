// The flow classifier: a TowerSketch of an array of 8-bit and one of 16-bit counters. Each register
// holds both groups, that of timestamp bit 1 behind that of bit 0.
//
// A counter at its maximum stands for infinity.

control Counters8(in access_t access, in index_t index, inout bit<8> count) {
    Register<bit<8>, index_t>(2 * CLASSIFIER_8, 0) counters;
    // What is to be done is for the stateful ALU to decide: one table instead of three.
    RegisterAction<bit<8>, index_t, bit<8>>(counters) touch = {
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
            count = touch.execute(index);
        }
    }
}

control Counters16(in access_t access, in index_t index, inout bit<16> count) {
    Register<bit<16>, index_t>(2 * CLASSIFIER_16, 0) counters;
    // What is to be done is for the stateful ALU to decide: one table instead of three.
    RegisterAction<bit<16>, index_t, bit<16>>(counters) touch = {
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
            count = touch.execute(index);
        }
    }
}

// Counts the packet and gives its counters; or gives a collection packet one.
control Classifier(in hashes_t hashes, in request_t request,
                   out bit<8> count8, out bit<16> count16) {
    Counters8() level0;
    Counters16() level1;

    apply {
        count8 = 0;
        count16 = 0;
        level0.apply(request.level0, hashes.index0, count8);
        level1.apply(request.level1, hashes.index1, count16);
    }
}
