// From the flow's size to its hierarchy: the thresholds and the sampling of the epoch. All tables
// are keyed by the timestamp bit, so that a reconfiguration fills those of the next epoch only.

control Hierarchy(in bit<1> timestamp, in bit<16> size, in bit<16> sample_hash,
                  out hierarchy_t hierarchy) {
    bit<16> seed;
    bit<16> highest;  // ceil(65536 R) - 1
    bit<16> over;

    action sample(bit<16> epoch_seed, bit<16> highest_sampled) {
        seed = epoch_seed;
        highest = highest_sampled;
    }

    table sampling {
        key = { timestamp : exact; }
        actions = { sample; }
        size = 2;
    }

    action candidate(hierarchy_t value) {
        hierarchy = value;
    }

    action light() {
        hierarchy = 0;
    }

    // Ranges of sizes from T_l and from T_h on.
    table thresholds {
        key = { timestamp : exact; size : range; }
        actions = { candidate; light; }
        const default_action = light;
        size = 4;
    }

    apply {
        sampling.apply();
        over = (sample_hash ^ seed) |-| highest;
        if (!thresholds.apply().hit && over == 0) {
            hierarchy = 1;
        }
    }
}
