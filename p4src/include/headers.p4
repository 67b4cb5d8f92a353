// Headers on the wire, and what a packet carries through the switch.

#ifndef CALUMMA_HEADERS
#define CALUMMA_HEADERS

typedef bit<48> mac_t;
typedef bit<16> word_t;      // hash word of a bucket array, as far as indexes need it
typedef bit<16> index_t;     // bucket of an array that holds both groups
typedef bit<2> hierarchy_t;  // 0 non-sampled LL, 1 sampled LL, 2 HL candidate, 3 HH candidate

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_VLAN = 0x8100;
const bit<16> TYPE_QINQ = 0x88A8;

const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_SCTP = 132;

header ethernet_h {
    mac_t dst;
    mac_t src;
    bit<16> type;
}

header vlan_h {
    bit<16> tag;
    bit<16> type;
}

// The top of the ToS byte is the mark: timestamp bit and hierarchy (docs/contract.md).
header ipv4_h {
    bit<4> version;
    bit<4> ihl;
    bit<3> mark;
    bit<5> tos_rest;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

// Four bytes of IPv4 options.
header option_h {
    bit<32> bytes;
}

// What TCP, UDP and SCTP begin with: source and destination port.
header ports_h {
    bit<32> both;
}

// From ingress to egress: the hashes of a measured packet.
header bridge_h {
    bit<8> measured;
    word_t word0;
    word_t word1;
    word_t word2;
    bit<12> pad;
    bit<20> fingerprint;
}

struct headers_t {
    bridge_h bridge;
    ethernet_h ethernet;
    vlan_h[2] vlan;
    ipv4_h ipv4;
    option_h[10] options;
    ports_h ports;
}

// What the hash functions give (docs/contract.md).
struct hashes_t {
    word_t word0;              // low bits of lanes 0 to 2: the bucket arrays
    word_t word1;
    word_t word2;
    word_t level0;             // low bits of the classifier's two words
    word_t level1;
    bit<16> sample;            // sample hash before the seed
    bit<20> fingerprint;
}

struct metadata_t {
    bool readable;             // IPv4 with ports, as far as the parser sees
    bit<32> ports;             // 0 where there are none
    bit<16> rest;              // checksum of what does not change
    bool changed;              // the checksum must follow
    bool from_host;
    bool measured;
    bit<1> timestamp;
    hierarchy_t hierarchy;
    hashes_t hashes;
}

#endif
