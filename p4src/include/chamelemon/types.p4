// What ChameleMon's program carries through the switch.

#ifndef CALUMMA_CHAMELEMON_TYPES
#define CALUMMA_CHAMELEMON_TYPES

typedef bit<2> hierarchy_t;  // 0 non-sampled LL, 1 sampled LL, 2 HL candidate, 3 HH candidate

// From ingress to egress: the hashes of a measured packet.
header bridge_h {
    bit<8> kind;
    word_t word0;
    word_t word1;
    word_t word2;
    bit<32> check;             // the fragment with the fingerprint
    bit<16> end;               // length at egress by the IPv4 total length; 0 where not measured
}

const bit<16> BRIDGE_BYTES = 13;

// What a notice says of a packet that no sketch holds.
header notice_h {
    bit<8> kind;
    bit<8> stream;
    bit<32> number;
    bit<32> src;
    bit<32> dst;
    bit<32> ports;
    bit<8> protocol;
    bit<8> mark;               // epoch bits known (1), 0 (2), epoch bits (2), mark (3)
}

// What the hash functions give (docs/contract.md).
struct hashes_t {
    word_t word0;              // low bits of lanes 0 to 2: the bucket arrays
    word_t word1;
    word_t word2;
    index_t index0;            // counters of the classifier
    index_t index1;
    bit<1> sampled;
    bit<32> check;             // the fragment with the fingerprint
}

// What a packet does to the registers of one gress.
struct request_t {
    bool collects;
    index_t next;
    access_t level0;
    access_t level1;
    access_t array0;
    access_t array1;
    access_t array2;
}

#endif
