// What each flow met at each switch that its stacks name, and at this one: for each place on a
// packet's path a tower of three arrays of pairs, latency and packets (section V-B of the SketchINT
// paper), both keyed by flow and switch (docs/contract.md, "Pairs"). Each register holds both
// groups, the second behind the first. All counters have 32 bits, of which the control plane takes
// the narrower ones of a software sink.
//
// What the first array has of a flow's packets at a switch, and the second one of their latencies,
// gives the mean before a packet, with which its own latency is compared.

// A latency that its switch could not tell.
const bit<32> UNKNOWN_LATENCY = 0xFFFFFFFF;

// A stateful ALU gives one word, so the words of a pair are read one after the other: the latency,
// then the packets.
const access_t READ_PACKETS = 3;

struct pair_t {
    bit<32> latency;
    bit<32> packets;
}

// What a packet does at each place, the source's first and this switch's last: where it records, in
// all arrays, and else in the one of the level.
struct places_t {
    access_t place0;
    access_t place1;
    access_t place2;
    access_t place3;
    access_t place4;
    access_t own;
    bit<2> level;
    bit<1> group;
}

#define PAIR_ARRAY PacketsArray
#define BEFORE packets
#include "pair_array.p4"
#undef PAIR_ARRAY
#undef BEFORE

#define PAIR_ARRAY LatencyArray
#define BEFORE latency
#include "pair_array.p4"

// One place. A switch's number is folded into the words of the flow: what a collection packet
// brings in their place, with the number 0, is an element.
//
// A latency is inflated if its logarithm and that of the packets before it are more, together, than
// that of their latencies and the threshold. All are taken so that it is more than the threshold
// says in truth; it is found to be from nine eighths of that on.
control Place(in access_t access, in bit<2> level, in bit<1> group, in pair_words_t words,
              in bit<32> node, in bit<32> latency, in bit<16> threshold, out bit<1> inflated,
              inout bit<32> word) {
    PacketsArray(2 * PAIRS_0, 0) level0;
    LatencyArray(2 * PAIRS_1, 1) level1;
    PacketsArray(2 * PAIRS_2, 2) level2;
    Hash<index_t>(HashAlgorithm_t.XOR16) xor0;
    Hash<index_t>(HashAlgorithm_t.XOR16) xor1;
    Hash<index_t>(HashAlgorithm_t.XOR16) xor2;
    Logarithm() of_latency;
    Logarithm() of_packets;
    Logarithm() of_sum;
    index_t at0;
    index_t at1;
    index_t at2;
    bit<32> units;
    bit<32> packets;
    bit<32> sum;
    bit<32> others;
    bit<16> least;
    bit<16> most;
    bit<16> ignored;
    bit<16> difference;
    bit<1> is_known;

    // A table takes 32 bits from the hash units.
    action first_places() {
        at0 = xor0.get({ PAIR_0(group, words.first), OF_NODE_0(node) });
        at1 = xor1.get({ PAIR_1(group, words.second), OF_NODE_1(node) });
    }

    action last_place() {
        at2 = xor2.get({ PAIR_2(group, words.third), OF_NODE_2(node) });
    }

    // Units of 64 ns, no less than the truth.
    action whole_units() {
        units = latency >> 6;
    }

    action compare() {
        difference = most - least;
    }

    apply {
        first_places();
        last_place();
        whole_units();
        is_known = 1;
        if (latency == UNKNOWN_LATENCY) {
            units = 0;
            is_known = 0;
        } else if (latency[5:0] != 0) {
            units = units + 1;
        }
        if (latency == 0) {
            is_known = 0;
        }
        packets = 0;
        sum = 0;
        others = 0;
        least = 0;
        most = threshold;
        ignored = 0;
        if (access == RECORD) {
            of_latency.apply(latency, least, ignored);
        }
        level0.apply(access, level, at0, units, word, packets);
        level1.apply(access, level, at1, units, word, sum);
        level2.apply(access, level, at2, units, word, others);
        if (access == RECORD) {
            of_packets.apply(packets, least, ignored);
        }
        if (packets[31:3] != 0 && is_known == 1) {
            of_sum.apply(sum, ignored, most);
        } else {
            most = NEVER;
        }
        compare();
        inflated = difference[15:15];
    }
}

// Which array of which place and group a collection packet means.
control PlacesRequest(in collect_h collect, inout places_t request) {
    action of_place0(bit<2> level, bit<1> group) {
        request.place0 = collect.access;
        request.level = level;
        request.group = group;
    }

    action of_place1(bit<2> level, bit<1> group) {
        request.place1 = collect.access;
        request.level = level;
        request.group = group;
    }

    action of_place2(bit<2> level, bit<1> group) {
        request.place2 = collect.access;
        request.level = level;
        request.group = group;
    }

    action of_place3(bit<2> level, bit<1> group) {
        request.place3 = collect.access;
        request.level = level;
        request.group = group;
    }

    action of_place4(bit<2> level, bit<1> group) {
        request.place4 = collect.access;
        request.level = level;
        request.group = group;
    }

    action of_own(bit<2> level, bit<1> group) {
        request.own = collect.access;
        request.level = level;
        request.group = group;
    }

    // 6 more than six times the place, twice the level and the group.
    table sources {
        key = { collect.source : exact; }
        actions = { of_place0; of_place1; of_place2; of_place3; of_place4; of_own; NoAction; }
        const default_action = NoAction;
        const entries = {
            6 : of_place0(0, 0);
            7 : of_place0(0, 1);
            8 : of_place0(1, 0);
            9 : of_place0(1, 1);
            10 : of_place0(2, 0);
            11 : of_place0(2, 1);
            12 : of_place1(0, 0);
            13 : of_place1(0, 1);
            14 : of_place1(1, 0);
            15 : of_place1(1, 1);
            16 : of_place1(2, 0);
            17 : of_place1(2, 1);
            18 : of_place2(0, 0);
            19 : of_place2(0, 1);
            20 : of_place2(1, 0);
            21 : of_place2(1, 1);
            22 : of_place2(2, 0);
            23 : of_place2(2, 1);
            24 : of_place3(0, 0);
            25 : of_place3(0, 1);
            26 : of_place3(1, 0);
            27 : of_place3(1, 1);
            28 : of_place3(2, 0);
            29 : of_place3(2, 1);
            30 : of_place4(0, 0);
            31 : of_place4(0, 1);
            32 : of_place4(1, 0);
            33 : of_place4(1, 1);
            34 : of_place4(2, 0);
            35 : of_place4(2, 1);
            36 : of_own(0, 0);
            37 : of_own(0, 1);
            38 : of_own(1, 0);
            39 : of_own(1, 1);
            40 : of_own(2, 0);
            41 : of_own(2, 1);
        }
        size = 36;
    }

    apply {
        sources.apply();
    }
}

// What a packet met at each place.
struct met_t {
    bit<32> node0;
    bit<32> latency0;
    bit<32> node1;
    bit<32> latency1;
    bit<32> node2;
    bit<32> latency2;
    bit<32> node3;
    bit<32> latency3;
    bit<32> node4;
    bit<32> latency4;
    bit<32> own;
    bit<32> latency;
}

// Reads what a stack that is taken out says of its first five hops: they are the last ones in it.
control Meet(in headers_t hdr, inout met_t met, inout places_t request) {
    action meet0() {
        met.node0 = hdr.taken[15].node;
        met.latency0 = hdr.taken[15].latency;
        request.place0 = RECORD;
    }

    action meet1() {
        met.node1 = hdr.taken[14].node;
        met.latency1 = hdr.taken[14].latency;
        request.place1 = RECORD;
    }

    action meet2() {
        met.node2 = hdr.taken[13].node;
        met.latency2 = hdr.taken[13].latency;
        request.place2 = RECORD;
    }

    action meet3() {
        met.node3 = hdr.taken[12].node;
        met.latency3 = hdr.taken[12].latency;
        request.place3 = RECORD;
    }

    action meet4() {
        met.node4 = hdr.taken[11].node;
        met.latency4 = hdr.taken[11].latency;
        request.place4 = RECORD;
    }

    apply {
        if (hdr.taken[15].isValid()) {
            meet0();
        }
        if (hdr.taken[14].isValid()) {
            meet1();
        }
        if (hdr.taken[13].isValid()) {
            meet2();
        }
        if (hdr.taken[12].isValid()) {
            meet3();
        }
        if (hdr.taken[11].isValid()) {
            meet4();
        }
    }
}

// Counts a packet at all places that it met, or gives a collection packet half of a pair.
// Says at which of them its latency is inflated, the first one's bit the highest.
control Places(in places_t request, in pair_words_t words, in met_t met, out bit<6> inflated,
               inout record_h record) {
    Place() place0;
    Place() place1;
    Place() place2;
    Place() place3;
    Place() place4;
    Place() own;
    bit<32> word;
    bit<16> threshold;
    bit<1> inflated0;
    bit<1> inflated1;
    bit<1> inflated2;
    bit<1> inflated3;
    bit<1> inflated4;
    bit<1> inflated5;

    action above(bit<16> log) {
        threshold = log;
    }

    // The logarithm of how many times a mean a latency must be to be inflated, in units.
    table inflation {
        actions = { above; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    action join() {
        inflated = inflated0 ++ inflated1 ++ inflated2 ++ inflated3 ++ inflated4 ++ inflated5;
    }

    apply {
        word = 0;
        threshold = NO_THRESHOLD;
        inflation.apply();
        place0.apply(request.place0, request.level, request.group, words, met.node0, met.latency0,
                     threshold, inflated0, word);
        place1.apply(request.place1, request.level, request.group, words, met.node1, met.latency1,
                     threshold, inflated1, word);
        place2.apply(request.place2, request.level, request.group, words, met.node2, met.latency2,
                     threshold, inflated2, word);
        place3.apply(request.place3, request.level, request.group, words, met.node3, met.latency3,
                     threshold, inflated3, word);
        place4.apply(request.place4, request.level, request.group, words, met.node4, met.latency4,
                     threshold, inflated4, word);
        own.apply(request.own, request.level, request.group, words, met.own, met.latency, threshold,
                  inflated5, word);
        join();
        if (request.place0 == READ || request.place1 == READ || request.place2 == READ
            || request.place3 == READ || request.place4 == READ || request.own == READ) {
            record = { word };
        } else if (request.place0 == READ_PACKETS || request.place1 == READ_PACKETS
                   || request.place2 == READ_PACKETS || request.place3 == READ_PACKETS
                   || request.place4 == READ_PACKETS || request.own == READ_PACKETS) {
            record = { word };
        }
    }
}
