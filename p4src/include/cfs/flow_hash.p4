// What the selection asks of a flow's hash: its row, where the filter notes it, and the word that
// it is graded by (docs/contract.md, "Selection").

control SelectionHash(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                      in window_t window, out hashes_t hashes) {
    CRCPolynomial<bit<32>>(CRC_X, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_x;
    CRCPolynomial<bit<32>>(CRC_Y, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) hash_x;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) hash_y;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor2;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_high;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_low;
    SecretByte() byte0;
    SecretByte() byte1;
    SecretByte() byte2;
    SecretByte() byte3;
    bit<32> x;
    bit<32> y;
    secret_t t0;
    secret_t t1;
    secret_t t2;
    secret_t t3;

    // A table takes 32 bits from the hash units.
    action digest_x() {
        x = hash_x.get({ src, dst, ports, protocol, 24w0 });
    }

    action digest_y() {
        y = hash_y.get({ src, dst, ports, protocol, 24w0 });
    }

    action places() {
        hashes.word0 = xor0.get({ t0.word0, t1.word0, t2.word0, t3.word0, ROTATED_0(y) });
        hashes.word2 = xor2.get({ t0.word2, t1.word2, t2.word2, t3.word2, ROTATED_2(y) });
    }

    // Lane 3 is rotated by 16: its low half takes the high half of y, and the other way round.
    action graded() {
        hashes.high = xor_high.get({
            t0.high, t1.high, t2.high, t3.high, y[15:0], window.seed_high });
        hashes.low = xor_low.get({
            t0.low, t1.low, t2.low, t3.low, y[31:16], window.seed_low });
    }

    apply {
        digest_x();
        digest_y();
        byte0.apply(x[7:0], t0);
        byte1.apply(x[15:8], t1);
        byte2.apply(x[23:16], t2);
        byte3.apply(x[31:24], t3);
        places();
        graded();
    }
}
