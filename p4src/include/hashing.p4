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
