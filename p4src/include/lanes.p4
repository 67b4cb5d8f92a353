// The secret tables of the contract's hash, for programs that keep more of its lanes than
// hashing.p4 gives them.

// What a byte of x contributes: both halves of lanes 0, 1 and 3, and the low one of lane 2.
struct lanes_t {
    word_t low0;
    word_t high0;
    word_t low1;
    word_t high1;
    word_t low2;
    word_t low3;
    word_t high3;
}

// One byte of x in its secret table; 256 entries, drawn from the deployment's key.
control LanesByte(in bit<8> byte, out lanes_t out_of) {
    action set(word_t w0_low, word_t w0_high, word_t w1_low, word_t w1_high, word_t w2_low,
               word_t w3_low, word_t w3_high) {
        out_of = { w0_low, w0_high, w1_low, w1_high, w2_low, w3_low, w3_high };
    }

    table secret {
        key = { byte : exact; }
        actions = { set; }
        const default_action = set(0, 0, 0, 0, 0, 0, 0);
        size = 256;
    }

    apply {
        secret.apply();
    }
}
