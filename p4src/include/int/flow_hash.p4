// What a source and sink asks of a flow's hash: a word by which it forwards, and the flow's
// counters in the tower of sizes and in those of pairs (docs/contract.md). The former are the words
// by which a software sink finds the arrays of 8, 16 and 32 bits among its five, as far as 2^16,
// 2^15 and 2^14 counters need them.
//
// Keys are wide ones, an IPv4 flow's addresses mapped. The hash units of each family have names of
// their own, of which the control plane knows that it is so.

control TowerHash(in headers_t hdr, in bit<32> ports, out hashes_t hashes) {
    CRCPolynomial<bit<32>>(CRC_X, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_x;
    CRCPolynomial<bit<32>>(CRC_Y, true, false, false, 0xFFFFFFFF, 0xFFFFFFFF) polynomial_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) mapped_x;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) mapped_y;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_x) wide_x;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial_y) wide_y;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor0;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor1;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor2;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_counter8;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_counter16;
    Hash<word_t>(HashAlgorithm_t.XOR16) xor_counter32;
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
        x = mapped_x.get({ 80w0, 16w0xFFFF, hdr.ipv4.src, 80w0, 16w0xFFFF, hdr.ipv4.dst, ports,
                           hdr.ipv4.protocol, 24w0 });
    }

    action digest_y() {
        y = mapped_y.get({ 80w0, 16w0xFFFF, hdr.ipv4.src, 80w0, 16w0xFFFF, hdr.ipv4.dst, ports,
                           hdr.ipv4.protocol, 24w0 });
    }

    action digest_wide_x() {
        x = wide_x.get({ hdr.ipv6.src_network, hdr.ipv6.src_interface, hdr.ipv6.dst_network,
                         hdr.ipv6.dst_interface, ports, hdr.ipv6.next_header, 24w0 });
    }

    action digest_wide_y() {
        y = wide_y.get({ hdr.ipv6.src_network, hdr.ipv6.src_interface, hdr.ipv6.dst_network,
                         hdr.ipv6.dst_interface, ports, hdr.ipv6.next_header, 24w0 });
    }

    // Lane 3 is rotated by 16, so that its low half takes the high half of y, and by 8 more for
    // this counter, whose bits 15 to 8 are the lane's lowest and 7 to 0 its highest.
    action of_8() {
        hashes.word0 = xor0.get({ t0.low0, t1.low0, t2.low0, t3.low0, ROTATED_0(y) });
        hashes.counter8 = xor_counter8.get({
            t0.low3[7:0], t0.high3[15:8], t1.low3[7:0], t1.high3[15:8],
            t2.low3[7:0], t2.high3[15:8], t3.low3[7:0], t3.high3[15:8],
            y[23:16], y[15:8], y[15:0] });
    }

    // The third one is of both lanes' upper halves: lane 0 as it is, lane 1 rotated by 11.
    action of_pairs() {
        hashes.pairs.second = xor1.get({ t0.low1, t1.low1, t2.low1, t3.low1, ROTATED_1(y) });
        hashes.pairs.third = xor2.get({
            t0.high0, t1.high0, t2.high0, t3.high0, y[31:16],
            t0.high1, t1.high1, t2.high1, t3.high1, y[20:5] });
    }

    // By 24 more: from bit 8 of the lane on. Lane 2 is rotated by 21.
    action of_16_and_32() {
        hashes.counter16 = xor_counter16.get({
            1w0, t0.high3[6:0], t0.low3[15:8], 1w0, t1.high3[6:0], t1.low3[15:8],
            1w0, t2.high3[6:0], t2.low3[15:8], 1w0, t3.high3[6:0], t3.low3[15:8],
            1w0, y[6:0], y[31:24], 1w0, x[14:0], 1w0, y[14:0] });
        hashes.counter32 = xor_counter32.get({
            2w0, t0.low2[13:0], 2w0, t1.low2[13:0], 2w0, t2.low2[13:0], 2w0, t3.low2[13:0],
            2w0, y[24:11] });
    }

    apply {
        if (hdr.ipv6.isValid()) {
            digest_wide_x();
            digest_wide_y();
        } else {
            digest_x();
            digest_y();
        }
        byte0.apply(x[7:0], t0);
        byte1.apply(x[15:8], t1);
        byte2.apply(x[23:16], t2);
        byte3.apply(x[31:24], t3);
        of_8();
        of_pairs();
        hashes.pairs.first = hashes.word0;
        of_16_and_32();
    }
}
