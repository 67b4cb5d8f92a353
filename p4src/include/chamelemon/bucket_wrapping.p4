// Bucket arrays with wrapping arithmetic: seven fragments of 15 bits and the count of packets, in
// 32-bit words that wrap, two to a register. Four stateful ALUs an array.

struct fragments_t {
    bit<16> f0;
    bit<16> f1;
    bit<16> f2;
    bit<16> f3;
    bit<16> f4;
    bit<16> f5;
    bit<16> f6;
}

// There is no fingerprint, and nothing left over for it.
control CheckFragment(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                      in bit<32> y, out bit<32> check) {
    apply {
        check = 0;
    }
}

// The 104 bits of the key and a zero bit, cut in order by the hash units.
control Fragments(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                  in bit<32> check, in bool collects, out fragments_t fragments) {
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) piece0;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) piece1;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) piece2;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) piece3;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) piece4;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) piece5;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) piece6;

    // A table takes 32 bits from the hash units.
    action cut01() {
        fragments.f0 = piece0.get({ 1w0, src[31:17] });
        fragments.f1 = piece1.get({ 1w0, src[16:2] });
    }

    action cut23() {
        fragments.f2 = piece2.get({ 1w0, src[1:0], dst[31:19] });
        fragments.f3 = piece3.get({ 1w0, dst[18:4] });
    }

    action cut45() {
        fragments.f4 = piece4.get({ 1w0, dst[3:0], ports[31:21] });
        fragments.f5 = piece5.get({ 1w0, ports[20:6] });
    }

    action cut_last() {
        fragments.f6 = piece6.get({ 1w0, ports[5:0], protocol, 1w0 });
    }

    apply {
        cut01();
        cut23();
        cut45();
        cut_last();
    }
}

// A stateful ALU gives one word, so the words of a pair are read one after the other.
const access_t READ_SECOND = 3;

struct pair_t {
    bit<32> first;
    bit<32> second;
}

// Half an element of an array, as a collection packet takes it along: the first or the second word
// of each pair.
header record_h {
    bit<32> w0;
    bit<32> w1;
    bit<32> w2;
    bit<32> w3;
}

control PairSum(in access_t access, in index_t index, in bit<16> first, in bit<16> second,
                inout bit<32> word)(bit<32> cells) {
    Register<pair_t, index_t>(cells, { 0, 0 }) sums;
    RegisterAction<pair_t, index_t, bit<32>>(sums) encode = {
        void apply(inout pair_t value) {
            value.first = value.first + (bit<32>)first;
            value.second = value.second + (bit<32>)second;
        }
    };
    RegisterAction<pair_t, index_t, bit<32>>(sums) read_first = {
        void apply(inout pair_t value, out bit<32> rv) {
            rv = value.first;
        }
    };
    RegisterAction<pair_t, index_t, bit<32>>(sums) read_second = {
        void apply(inout pair_t value, out bit<32> rv) {
            rv = value.second;
        }
    };
    RegisterAction<pair_t, index_t, bit<32>>(sums) clear = {
        void apply(inout pair_t value) {
            value.first = 0;
            value.second = 0;
        }
    };

    action record_one() { encode.execute(index); }
    action read_one() { word = read_first.execute(index); }
    action read_other() { word = read_second.execute(index); }
    action clear_one() { clear.execute(index); }

    // Four conditions would be four of the 16 logical tables of a stage; this is one.
    table access_to {
        key = { access : exact; }
        actions = { record_one; read_one; read_other; clear_one; NoAction; }
        const default_action = NoAction;
        const entries = {
            RECORD : record_one();
            READ : read_one();
            READ_SECOND : read_other();
            CLEAR : clear_one();
        }
        size = 4;
    }

    apply {
        access_to.apply();
    }
}

control BucketArray(in access_t access, in index_t index, in fragments_t fragments,
                    inout record_h record)(bit<32> cells) {
    PairSum(cells) fragments01;
    PairSum(cells) fragments23;
    PairSum(cells) fragments45;
    PairSum(cells) fragment6_count;

    apply {
        fragments01.apply(access, index, fragments.f0, fragments.f1, record.w0);
        fragments23.apply(access, index, fragments.f2, fragments.f3, record.w1);
        fragments45.apply(access, index, fragments.f4, fragments.f5, record.w2);
        fragment6_count.apply(access, index, fragments.f6, 1, record.w3);
        if (access == READ || access == READ_SECOND) {
            record.setValid();
        }
    }
}
