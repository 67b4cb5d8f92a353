// An array of pairs.p4, by the name PAIR_ARRAY. Where a packet records, `before` is the half BEFORE
// of the pair that it has found: a stateful ALU gives one word.

control PAIR_ARRAY(in access_t access, in bit<2> level, in index_t at, in bit<32> units,
                   inout bit<32> word, inout bit<32> before)(bit<32> cells, bit<2> own_level) {
    Register<pair_t, index_t>(cells, { 0, 0 }) pairs;
    RegisterAction<pair_t, index_t, bit<32>>(pairs) record = {
        void apply(inout pair_t value, out bit<32> rv) {
            rv = value.BEFORE;
            value.latency = value.latency |+| units;
            value.packets = value.packets |+| 1;
        }
    };
    RegisterAction<pair_t, index_t, bit<32>>(pairs) read_latency = {
        void apply(inout pair_t value, out bit<32> rv) {
            rv = value.latency;
        }
    };
    RegisterAction<pair_t, index_t, bit<32>>(pairs) read_packets = {
        void apply(inout pair_t value, out bit<32> rv) {
            rv = value.packets;
        }
    };
    RegisterAction<pair_t, index_t, bit<32>>(pairs) clear = {
        void apply(inout pair_t value) {
            value.latency = 0;
            value.packets = 0;
        }
    };

    action record_one() { before = record.execute(at); }
    action read_first() { word = read_latency.execute(at); }
    action read_second() { word = read_packets.execute(at); }
    action clear_one() { clear.execute(at); }

    table access_to {
        key = { access : exact; }
        actions = { record_one; read_first; read_second; clear_one; NoAction; }
        const default_action = NoAction;
        const entries = {
            RECORD : record_one();
            READ : read_first();
            READ_PACKETS : read_second();
            CLEAR : clear_one();
        }
        size = 4;
    }

    apply {
        if (access == RECORD || level == own_level) {
            access_to.apply();
        }
    }
}
