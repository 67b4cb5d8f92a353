// The arrays of tower.p4 where a packet raises, in each array, a counter that is not above the
// smallest of those before (ACU, section IV-B of the SketchINT paper), where one at its maximum
// stands for infinity. They follow each other, so that each knows what those before it had.

// Gives what a counter was before.
control Tower8(in access_t access, in counter_t at, inout bit<8> count) {
    Register<bit<8>, counter_t>(2 * TOWER_8, 0) counters;
    RegisterAction<bit<8>, counter_t, bit<8>>(counters) touch = {
        void apply(inout bit<8> value, out bit<8> rv) {
            rv = value;
            if (access == RECORD) {
                value = value |+| 1;
            } else if (access == CLEAR) {
                value = 0;
            }
        }
    };

    apply {
        if (access != NOTHING) {
            count = touch.execute(at);
        }
    }
}

control Tower16(in access_t access, in counter_t at, in bit<16> most, inout bit<16> count) {
    Register<bit<16>, counter_t>(2 * TOWER_16, 0) counters;
    RegisterAction<bit<16>, counter_t, bit<16>>(counters) touch = {
        void apply(inout bit<16> value, out bit<16> rv) {
            rv = value;
            if (access == RECORD && value <= most) {
                value = value |+| 1;
            }
        }
    };
    RegisterAction<bit<16>, counter_t, bit<16>>(counters) clear = {
        void apply(inout bit<16> value) {
            value = 0;
        }
    };

    apply {
        if (access == CLEAR) {
            clear.execute(at);
        } else if (access != NOTHING) {
            count = touch.execute(at);
        }
    }
}

control Tower32(in access_t access, in counter_t at, in bit<32> most, inout bit<32> count) {
    Register<bit<32>, counter_t>(2 * TOWER_32, 0) counters;
    RegisterAction<bit<32>, counter_t, bit<32>>(counters) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            if (access == RECORD && value <= most) {
                value = value |+| 1;
            }
        }
    };
    RegisterAction<bit<32>, counter_t, bit<32>>(counters) clear = {
        void apply(inout bit<32> value) {
            value = 0;
        }
    };

    apply {
        if (access == CLEAR) {
            clear.execute(at);
        } else if (access != NOTHING) {
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
    bit<16> most16;
    bit<32> most32;
    bit<16> over16;
    bit<32> over32;

    action places() {
        at8 = AT_8(request.group, word8);
        at16 = AT_16(request.group, word16);
        at32 = AT_32(request.group, word32);
    }

    action compare16() {
        over16 = sizes.of_16 |-| most16;
    }

    action compare32() {
        over32 = sizes.of_32 |-| most32;
    }

    apply {
        sizes = { 0, 0, 0 };
        most16 = 0xFFFF;
        most32 = 0xFFFFFFFF;
        places();
        level8.apply(request.of_8, at8, sizes.of_8);
        if (sizes.of_8 != 0xFF) {
            most16 = 8w0 ++ sizes.of_8;
        }
        level16.apply(request.of_16, at16, most16, sizes.of_16);
        compare16();
        if (over16 != 0) {
            most32 = 16w0 ++ most16;
        } else if (sizes.of_16 != 0xFFFF) {
            most32 = 16w0 ++ sizes.of_16;
        }
        level32.apply(request.of_32, at32, most32, sizes.of_32);
        compare32();
        if (request.of_8 == READ) {
            record = { 24w0 ++ sizes.of_8 };
        } else if (request.of_16 == READ) {
            record = { 16w0 ++ sizes.of_16 };
        } else if (request.of_32 == READ) {
            record = { sizes.of_32 };
        } else if (request.of_8 == RECORD) {
            sizes.of_8 = sizes.of_8 |+| 1;
            if (over16 == 0) {
                sizes.of_16 = sizes.of_16 |+| 1;
            }
            if (over32 == 0) {
                sizes.of_32 = sizes.of_32 |+| 1;
            }
        }
    }
}
