// What a source and sink asks of a flow's hash: a word by which it forwards, and the flow's
// counters in the tower of sizes (docs/contract.md). They are the words by which a software sink
// finds the arrays of 8, 16 and 32 bits among its five, as far as 2^16, 2^15 and 2^14 counters need
// them.

control TowerHash(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                  out hashes_t hashes) {
    CRCPolynomial<bit<32>>(CRC_X, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_x;
    CRCPolynomial<bit<32>>(CRC_Y, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) hash_x;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) hash_y;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_counter8;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_counter16;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_counter32;
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

    // Lane 3 is rotated by 16, so that its low half takes the high half of y, and by 8 more for
    // this counter, whose bits 15 to 8 are the lane's lowest and 7 to 0 its highest.
    action of_8() {
        hashes.word0 = xor0.get({ t0.word0, t1.word0, t2.word0, t3.word0, ROTATED_0(y) });
        hashes.counter8 = xor_counter8.get({
            t0.low[7:0], t0.high[15:8], t1.low[7:0], t1.high[15:8],
            t2.low[7:0], t2.high[15:8], t3.low[7:0], t3.high[15:8],
            y[23:16], y[15:8], y[15:0] });
    }

    // By 24 more: from bit 8 of the lane on. Lane 2 is rotated by 21.
    action of_16_and_32() {
        hashes.counter16 = xor_counter16.get({
            1w0, t0.high[6:0], t0.low[15:8], 1w0, t1.high[6:0], t1.low[15:8],
            1w0, t2.high[6:0], t2.low[15:8], 1w0, t3.high[6:0], t3.low[15:8],
            1w0, y[6:0], y[31:24], 1w0, x[14:0], 1w0, y[14:0] });
        hashes.counter32 = xor_counter32.get({
            2w0, t0.word2[13:0], 2w0, t1.word2[13:0], 2w0, t2.word2[13:0], 2w0, t3.word2[13:0],
            2w0, y[24:11] });
    }

    apply {
        digest_x();
        digest_y();
        byte0.apply(x[7:0], t0);
        byte1.apply(x[15:8], t1);
        byte2.apply(x[23:16], t2);
        byte3.apply(x[31:24], t3);
        of_8();
        of_16_and_32();
    }
}
