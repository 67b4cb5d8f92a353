// The keyed hash of the contract: one CRC looked up byte by byte in secret tables, the other
// rotated in.
//
// The exclusive or of four table words and a rotated CRC is linear, so the hash units compute it
// at the moment they are asked for an index: one more stage instead of a chain of additions.

// One byte of x in its secret table; 256 entries, drawn from the deployment's key.
control SecretByte(in bit<8> byte, out word_t word0, out word_t word1, out word_t word2,
                   out bit<32> word3) {
    action set(word_t w0, word_t w1, word_t w2, bit<32> w3) {
        word0 = w0;
        word1 = w1;
        word2 = w2;
        word3 = w3;
    }

    table secret {
        key = { byte : exact; }
        actions = { set; }
        size = 256;
    }

    apply {
        secret.apply();
    }
}

struct secret_t {
    word_t word0;
    word_t word1;
    word_t word2;
    bit<32> word3;
}

control FlowHash(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                 out hashes_t hashes) {
    CRCPolynomial<bit<32>>(CRC_X, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_x;
    CRCPolynomial<bit<32>>(CRC_Y, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) hash_x;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) hash_y;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor1;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor2;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_level0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_level1;
    Hash<bit<16>>(HashAlgorithm_t.XOR16) xor_sample;
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

    apply {
        x = hash_x.get({ src, dst, ports, protocol, 24w0 });
        y = hash_y.get({ src, dst, ports, protocol, 24w0 });
        byte0.apply(x[7:0], t0.word0, t0.word1, t0.word2, t0.word3);
        byte1.apply(x[15:8], t1.word0, t1.word1, t1.word2, t1.word3);
        byte2.apply(x[23:16], t2.word0, t2.word1, t2.word2, t2.word3);
        byte3.apply(x[31:24], t3.word0, t3.word1, t3.word2, t3.word3);
        hashes.word0 = xor0.get({ t0.word0, t1.word0, t2.word0, t3.word0, ROTATED_0(y) });
        hashes.word1 = xor1.get({ t0.word1, t1.word1, t2.word1, t3.word1, ROTATED_1(y) });
        hashes.word2 = xor2.get({ t0.word2, t1.word2, t2.word2, t3.word2, ROTATED_2(y) });
        // Lane 3 is rotated by 16: its low half takes the high half of y, and the other way round.
        hashes.level0 = xor_level0.get({
            t0.word3[15:0], t1.word3[15:0], t2.word3[15:0], t3.word3[15:0], y[31:16] });
        hashes.level1 = xor_level1.get({
            t0.word3[31:16], t1.word3[31:16], t2.word3[31:16], t3.word3[31:16], y[15:0], x[15:0] });
        hashes.sample = xor_sample.get({
            t0.word3[31:16], t1.word3[31:16], t2.word3[31:16], t3.word3[31:16],
            y[15:0], y[31:16] });
        hashes.fingerprint = y[31:12];
    }
}
