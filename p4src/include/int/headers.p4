// In-band network telemetry behind TCP's fixed header or UDP's: INT-MD, version 2.1 (P4.org).
// Included by headers.p4 where a program defines TELEMETRY.

#ifndef CALUMMA_INT_HEADERS
#define CALUMMA_INT_HEADERS

// What follows the ports.
header tcp_rest_h {
    bit<32> sequence;
    bit<32> acknowledged;
    bit<16> flags;             // the offset of the data among them
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_rest_h {
    bit<16> length;
    bit<16> checksum;
}

// In front of the metadata: how many words of it follow, and the DSCP that the host had sent.
header int_shim_h {
    bit<8> kind;               // 0x10: INT-MD, and nothing else behind it
    bit<8> length;
    bit<8> zero;
    bit<6> dscp;
    bit<2> reserved;
}

header int_metadata_h {
    bit<4> version;
    bit<1> discard;
    bit<1> exceeded;           // a switch found no hops left
    bit<1> too_long;           // a switch found no room
    bit<12> reserved;
    bit<5> words;              // that each switch pushes
    bit<8> left;               // switches that may still push
    bit<16> instructions;
    bit<16> domain;
    bit<16> own_instructions;  // of the domain
    bit<16> own_flags;
}

// What this switch pushes.
header int_hop_h {
    bit<32> node;
    bit<32> latency;
}

// What each switch is asked for: its number, and how long the packet was in it.
const bit<16> NODE_AND_LATENCY = 0xA000;
const bit<5> HOP_WORDS = 2;
const bit<16> HOP_BYTES = 8;

const bit<8> INT_SHIM = 0x10;
const bit<4> INT_VERSION = 2;

// What the checksums must give up, complemented (RFC 1624), and what they get beside the fields
// that took its place.
struct telemetry_t {
    bit<16> checksum;          // behind the ports
    bit<16> shim;
    bit<16> flags;
    bit<16> left;
    bit<32> node;              // as pushed; 0 where nothing is
    bit<32> latency;
    bit<16> dscp;              // what else a source puts in; 0 where it does not
    bit<16> instructions;
    bit<16> domain;
    bit<16> longer;            // by how much the datagram is
    bit<16> longer_ip;         // as the IPv4 header says it
    bit<1> tcp;                // whose checksum follows
    bit<1> udp;
}

#endif
