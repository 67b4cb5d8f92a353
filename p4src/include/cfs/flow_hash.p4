// What the selection asks of a flow's hash: its row, where the filter notes it, the word that it is
// graded by, and where and how it counts among all flows (docs/contract.md, "Selection").
//
// The words of all switches are those of wide keys, an IPv4 flow's addresses mapped: that is the
// build with WIDE_KEYS, which the daemon runs. The one without saves hash bits where a single
// switch counts for itself. The hash units of the two have other names, so that the control plane
// finds which one it is.

#ifdef WIDE_KEYS
#define HASH_X wide_x
#define HASH_Y wide_y
#define KEY { 80w0, 16w0xFFFF, src, 80w0, 16w0xFFFF, dst, ports, protocol, 24w0 }
#else
#define HASH_X hash_x
#define HASH_Y hash_y
#define KEY { src, dst, ports, protocol, 24w0 }
#endif

control SelectionHash(in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                      in window_t window, out hashes_t hashes) {
    CRCPolynomial<bit<32>>(CRC_X, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_x;
    CRCPolynomial<bit<32>>(CRC_Y, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) HASH_X;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) HASH_Y;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_low0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_high0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_low1;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_high1;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_low2;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_low3;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_high3;
    LanesByte() byte0;
    LanesByte() byte1;
    LanesByte() byte2;
    LanesByte() byte3;
    bit<32> x;
    bit<32> y;
    lanes_t t0;
    lanes_t t1;
    lanes_t t2;
    lanes_t t3;

    // A table takes 32 bits from the hash units.
    action digest_x() {
        x = HASH_X.get(KEY);
    }

    action digest_y() {
        y = HASH_Y.get(KEY);
    }

    action places() {
        hashes.word0 = xor_low0.get({ t0.low0, t1.low0, t2.low0, t3.low0, ROTATED_0(y) });
        hashes.word2 = xor_low2.get({ t0.low2, t1.low2, t2.low2, t3.low2, ROTATED_2(y) });
    }

    // Lane 3 is rotated by 16: its low half takes the high half of y, and the other way round.
    action graded() {
        hashes.high = xor_high3.get({
            t0.high3, t1.high3, t2.high3, t3.high3, y[15:0], window.seed_high });
        hashes.low = xor_low3.get({
            t0.low3, t1.low3, t2.low3, t3.low3, y[31:16], window.seed_low });
    }

    // Lane 1 is rotated by 11.
    action lane1() {
        hashes.low1 = xor_low1.get({ t0.low1, t1.low1, t2.low1, t3.low1, ROTATED_1(y) });
        hashes.high1 = xor_high1.get({ t0.high1, t1.high1, t2.high1, t3.high1, y[20:5] });
    }

    action lane0() {
        hashes.high0 = xor_high0.get({ t0.high0, t1.high0, t2.high0, t3.high0, y[31:16] });
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
        lane1();
        lane0();
    }
}

// How a flow counts among all flows: one more than the zeros before the first 1 behind the bits that
// say where.
control Run(in hashes_t hashes, out bit<8> run) {
    action set(bit<8> length) {
        run = length;
    }

    table runs {
        key = {
            hashes.high0[3:0] : ternary;
            hashes.word0 : ternary;
            hashes.high1 : ternary;
            hashes.low1 : ternary;
        }
        actions = { set; }
        const default_action = set(53);
        const entries = {
            (0x8 &&& 0x8, _, _, _) : set(1);
            (0x4 &&& 0xC, _, _, _) : set(2);
            (0x2 &&& 0xE, _, _, _) : set(3);
            (0x1 &&& 0xF, _, _, _) : set(4);
            (0, 0x8000 &&& 0x8000, _, _) : set(5);
            (0, 0x4000 &&& 0xC000, _, _) : set(6);
            (0, 0x2000 &&& 0xE000, _, _) : set(7);
            (0, 0x1000 &&& 0xF000, _, _) : set(8);
            (0, 0x0800 &&& 0xF800, _, _) : set(9);
            (0, 0x0400 &&& 0xFC00, _, _) : set(10);
            (0, 0x0200 &&& 0xFE00, _, _) : set(11);
            (0, 0x0100 &&& 0xFF00, _, _) : set(12);
            (0, 0x0080 &&& 0xFF80, _, _) : set(13);
            (0, 0x0040 &&& 0xFFC0, _, _) : set(14);
            (0, 0x0020 &&& 0xFFE0, _, _) : set(15);
            (0, 0x0010 &&& 0xFFF0, _, _) : set(16);
            (0, 0x0008 &&& 0xFFF8, _, _) : set(17);
            (0, 0x0004 &&& 0xFFFC, _, _) : set(18);
            (0, 0x0002 &&& 0xFFFE, _, _) : set(19);
            (0, 0x0001 &&& 0xFFFF, _, _) : set(20);
            (0, 0, 0x8000 &&& 0x8000, _) : set(21);
            (0, 0, 0x4000 &&& 0xC000, _) : set(22);
            (0, 0, 0x2000 &&& 0xE000, _) : set(23);
            (0, 0, 0x1000 &&& 0xF000, _) : set(24);
            (0, 0, 0x0800 &&& 0xF800, _) : set(25);
            (0, 0, 0x0400 &&& 0xFC00, _) : set(26);
            (0, 0, 0x0200 &&& 0xFE00, _) : set(27);
            (0, 0, 0x0100 &&& 0xFF00, _) : set(28);
            (0, 0, 0x0080 &&& 0xFF80, _) : set(29);
            (0, 0, 0x0040 &&& 0xFFC0, _) : set(30);
            (0, 0, 0x0020 &&& 0xFFE0, _) : set(31);
            (0, 0, 0x0010 &&& 0xFFF0, _) : set(32);
            (0, 0, 0x0008 &&& 0xFFF8, _) : set(33);
            (0, 0, 0x0004 &&& 0xFFFC, _) : set(34);
            (0, 0, 0x0002 &&& 0xFFFE, _) : set(35);
            (0, 0, 0x0001 &&& 0xFFFF, _) : set(36);
            (0, 0, 0, 0x8000 &&& 0x8000) : set(37);
            (0, 0, 0, 0x4000 &&& 0xC000) : set(38);
            (0, 0, 0, 0x2000 &&& 0xE000) : set(39);
            (0, 0, 0, 0x1000 &&& 0xF000) : set(40);
            (0, 0, 0, 0x0800 &&& 0xF800) : set(41);
            (0, 0, 0, 0x0400 &&& 0xFC00) : set(42);
            (0, 0, 0, 0x0200 &&& 0xFE00) : set(43);
            (0, 0, 0, 0x0100 &&& 0xFF00) : set(44);
            (0, 0, 0, 0x0080 &&& 0xFF80) : set(45);
            (0, 0, 0, 0x0040 &&& 0xFFC0) : set(46);
            (0, 0, 0, 0x0020 &&& 0xFFE0) : set(47);
            (0, 0, 0, 0x0010 &&& 0xFFF0) : set(48);
            (0, 0, 0, 0x0008 &&& 0xFFF8) : set(49);
            (0, 0, 0, 0x0004 &&& 0xFFFC) : set(50);
            (0, 0, 0, 0x0002 &&& 0xFFFE) : set(51);
            (0, 0, 0, 0x0001 &&& 0xFFFF) : set(52);
        }
        size = 52;
    }

    apply {
        runs.apply();
    }
}
