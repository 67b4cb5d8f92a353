// All that ChameleMon asks of a flow's hash: words of the bucket arrays, counters of the
// classifier, and whether the flow is sampled.
//
// The exclusive or of four table words and a rotated CRC is linear, so the hash units compute it
// at the moment they are asked for an index: one more stage instead of a chain of additions.

control FlowHash(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                 in bit<1> timestamp, in request_t request, out hashes_t hashes) {
    CRCPolynomial<bit<32>>(CRC_X, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_x;
    CRCPolynomial<bit<32>>(CRC_Y, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) hash_x;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) hash_y;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor1;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor2;
    Hash<index_t>(HashAlgorithm_t.XOR16) xor_index0;
    Hash<index_t>(HashAlgorithm_t.XOR16) xor_index1;
    Hash<bit<16>>(HashAlgorithm_t.XOR16) xor_sample;
    SecretByte() byte0;
    SecretByte() byte1;
    SecretByte() byte2;
    SecretByte() byte3;
    CheckFragment() check;
    bit<32> x;
    bit<32> y;
    bit<16> seed;
    bit<16> highest;  // ceil(65536 R) - 1
    bit<16> sample_hash;
    bit<16> over;
    secret_t t0;
    secret_t t1;
    secret_t t2;
    secret_t t3;

    action sample(bit<16> epoch_seed, bit<16> highest_sampled) {
        seed = epoch_seed;
        highest = highest_sampled;
    }

    // A table takes 32 bits from the hash units.
    action digest_x() {
        x = hash_x.get({ src, dst, ports, protocol, 24w0 });
    }

    action digest_y() {
        y = hash_y.get({ src, dst, ports, protocol, 24w0 });
    }

    action words01() {
        hashes.word0 = xor0.get({ t0.word0, t1.word0, t2.word0, t3.word0, ROTATED_0(y) });
        hashes.word1 = xor1.get({ t0.word1, t1.word1, t2.word1, t3.word1, ROTATED_1(y) });
    }

    action word2_and_sample() {
        hashes.word2 = xor2.get({ t0.word2, t1.word2, t2.word2, t3.word2, ROTATED_2(y) });
        sample_hash = xor_sample.get({
            t0.high, t1.high, t2.high, t3.high, y[15:0], y[31:16], seed });
    }

    action compare() {
        over = sample_hash |-| highest;
    }

    table sampling {
        key = { timestamp : exact; }
        actions = { sample; }
        const default_action = sample(0, 0);
        size = 2;
    }

    apply {
        sampling.apply();
        digest_x();
        digest_y();
        byte0.apply(x[7:0], t0);
        byte1.apply(x[15:8], t1);
        byte2.apply(x[23:16], t2);
        byte3.apply(x[31:24], t3);
        words01();
        word2_and_sample();
        compare();
        hashes.sampled = 0;
        if (over == 0) {
            hashes.sampled = 1;
        }
        check.apply(src, dst, ports, protocol, y, hashes.check);
        if (request.collects) {
            hashes.index0 = request.next;
            hashes.index1 = request.next;
        } else {
            // Lane 3 is rotated by 16: its low half takes the high half of y, and the other way
            // round. The group is put in above the bits of an index.
            hashes.index0 = xor_index0.get({
                ABOVE_8, t0.low[INDEX_8], ABOVE_8, t1.low[INDEX_8],
                ABOVE_8, t2.low[INDEX_8], ABOVE_8, t3.low[INDEX_8],
                GROUP_8(timestamp), y[HIGH_8] });
            hashes.index1 = xor_index1.get({
                ABOVE_16, t0.high[INDEX_16], ABOVE_16, t1.high[INDEX_16],
                ABOVE_16, t2.high[INDEX_16], ABOVE_16, t3.high[INDEX_16],
                ABOVE_16, y[INDEX_16], GROUP_16(timestamp), x[INDEX_16] });
        }
    }
}
