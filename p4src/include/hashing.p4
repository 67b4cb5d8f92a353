// The keyed hash of the contract: one CRC looked up byte by byte in secret tables, the other
// rotated in. The tables are here; which words are made of them is for each program to say.

// What a byte of x contributes: the low halves of lanes 0 to 2, and both halves of lane 3.
struct secret_t {
    word_t word0;
    word_t word1;
    word_t word2;
    word_t low;
    word_t high;
}

// One byte of x in its secret table; 256 entries, drawn from the deployment's key.
control SecretByte(in bit<8> byte, out secret_t out_of) {
    action set(word_t w0, word_t w1, word_t w2, word_t w3_low, word_t w3_high) {
        out_of = { w0, w1, w2, w3_low, w3_high };
    }

    table secret {
        key = { byte : exact; }
        actions = { set; }
        const default_action = set(0, 0, 0, 0, 0);
        size = 256;
    }

    apply {
        secret.apply();
    }
}

// The first word of a flow, for programs that need no other.
control FlowWord(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                 out word_t word0) {
    CRCPolynomial<bit<32>>(CRC_X, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_x;
    CRCPolynomial<bit<32>>(CRC_Y, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) hash_x;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) hash_y;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor0;
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

    action first_word() {
        word0 = xor0.get({ t0.word0, t1.word0, t2.word0, t3.word0, ROTATED_0(y) });
    }

    apply {
        digest_x();
        digest_y();
        byte0.apply(x[7:0], t0);
        byte1.apply(x[15:8], t1);
        byte2.apply(x[23:16], t2);
        byte3.apply(x[31:24], t3);
        first_word();
    }
}
