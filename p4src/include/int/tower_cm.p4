// The arrays of tower.p4 where a packet raises all of its flow's counters (CM).

control Tower8(in access_t access, in counter_t at, inout bit<8> count) {
    Register<bit<8>, counter_t>(2 * TOWER_8, 0) counters;
    RegisterAction<bit<8>, counter_t, bit<8>>(counters) touch = {
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
            count = touch.execute(at);
        }
    }
}

control Tower16(in access_t access, in counter_t at, inout bit<16> count) {
    Register<bit<16>, counter_t>(2 * TOWER_16, 0) counters;
    RegisterAction<bit<16>, counter_t, bit<16>>(counters) touch = {
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
            count = touch.execute(at);
        }
    }
}

control Tower32(in access_t access, in counter_t at, inout bit<32> count) {
    Register<bit<32>, counter_t>(2 * TOWER_32, 0) counters;
    RegisterAction<bit<32>, counter_t, bit<32>>(counters) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
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
            count = touch.execute(at);
        }
    }
}

// Counts a packet, or gives a collection packet a counter. Each word has as many bits as its
// array's indexes.
control Tower(in towers_t request, in word_t word8, in word_t word16, in word_t word32,
              out sizes_t sizes, inout record_h record) {
    Tower8() level8;
    Tower16() level16;
    Tower32() level32;
    counter_t at8;
    counter_t at16;
    counter_t at32;

    action places() {
        at8 = AT_8(request.group, word8);
        at16 = AT_16(request.group, word16);
        at32 = AT_32(request.group, word32);
    }

    apply {
        sizes = { 0, 0, 0 };
        places();
        level8.apply(request.of_8, at8, sizes.of_8);
        level16.apply(request.of_16, at16, sizes.of_16);
        level32.apply(request.of_32, at32, sizes.of_32);
        if (request.of_8 == READ) {
            record = { 24w0 ++ sizes.of_8 };
        } else if (request.of_16 == READ) {
            record = { 16w0 ++ sizes.of_16 };
        } else if (request.of_32 == READ) {
            record = { sizes.of_32 };
        }
    }
}
