// Bucket arrays with prime arithmetic: four fragments of 31 bits, each summed modulo PRIME in a
// register of its own, and a count of packets. Five stateful ALUs an array.

struct fragments_t {
    bit<32> f0;
    bit<32> f1;
    bit<32> f2;
    bit<32> f3;
    // PRIME - fragment: what is subtracted where adding would reach the prime.
    bit<32> inverse0;
    bit<32> inverse1;
    bit<32> inverse2;
    bit<32> inverse3;
}

// The fourth fragment: what the others leave out of the key, and the fingerprint. The hash units
// put it together from its five pieces.
control CheckFragment(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                      in bit<32> y, out bit<32> check) {
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) pieces;

    action join() {
        check = pieces.get({ 1w0, src[31:31], dst[31:31], ports[31:31], protocol, FINGERPRINT(y) });
    }

    apply {
        join();
    }
}

control Fragments(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                  in bit<32> check, in bool collects, out fragments_t fragments) {
    // A collection packet adds nothing.
    action nothing() {
        fragments.f0 = 0;
        fragments.f1 = 0;
        fragments.f2 = 0;
        fragments.f3 = 0;
    }

    action cut() {
        fragments.f0 = src & 0x7FFFFFFF;
        fragments.f1 = dst & 0x7FFFFFFF;
        fragments.f2 = ports & 0x7FFFFFFF;
        fragments.f3 = check;
    }

    // In an action of its own: an action makes one step.
    action invert() {
        fragments.inverse0 = PRIME - fragments.f0;
        fragments.inverse1 = PRIME - fragments.f1;
        fragments.inverse2 = PRIME - fragments.f2;
        fragments.inverse3 = PRIME - fragments.f3;
    }

    apply {
        if (collects) {
            nothing();
        } else {
            cut();
        }
        invert();
    }
}

// One element of an array, as a collection packet takes it along: fragments, then the count.
header record_h {
    bit<32> w0;
    bit<32> w1;
    bit<32> w2;
    bit<32> w3;
    bit<32> w4;
}

control ModularSum(in access_t access, in index_t index, in bit<32> fragment, in bit<32> inverse,
                   inout bit<32> word)(bit<32> size) {
    Register<bit<32>, index_t>(size, 0) sums;
    // Nothing is added to what is only read.
    RegisterAction<bit<32>, index_t, bit<32>>(sums) add = {
        void apply(inout bit<32> value, out bit<32> rv) {
            if (value >= inverse) {
                value = value - inverse;
            } else {
                value = value + fragment;
            }
            rv = value;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(sums) clear = {
        void apply(inout bit<32> value) {
            value = 0;
        }
    };

    apply {
        if (access == RECORD || access == READ) {
            word = add.execute(index);
        } else if (access == CLEAR) {
            clear.execute(index);
        }
    }
}

control BucketArray(in access_t access, in index_t index, in fragments_t fragments,
                    inout record_h record)(bit<32> size) {
    ModularSum(size) fragment0;
    ModularSum(size) fragment1;
    ModularSum(size) fragment2;
    ModularSum(size) fragment3;
    Register<bit<32>, index_t>(size, 0) counts;
    RegisterAction<bit<32>, index_t, bit<32>>(counts) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
            if (access == RECORD) {
                value = value + 1;
            } else if (access == CLEAR) {
                value = 0;
            }
            rv = value;
        }
    };

    apply {
        fragment0.apply(access, index, fragments.f0, fragments.inverse0, record.w0);
        fragment1.apply(access, index, fragments.f1, fragments.inverse1, record.w1);
        fragment2.apply(access, index, fragments.f2, fragments.inverse2, record.w2);
        fragment3.apply(access, index, fragments.f3, fragments.inverse3, record.w3);
        if (access != NOTHING) {
            record.w4 = touch.execute(index);
        }
        if (access == READ) {
            record.setValid();
        }
    }
}
