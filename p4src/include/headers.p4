// Headers on the wire, and what a packet carries through the switch.
//
// A program declares beforehand what is its own: `bridge_h` with BRIDGE_BYTES, `record_h` and
// `hashes_t`. A bridged header begins with the kind, and ends with the length `end`. A program that
// sends packets through its ingress a second time defines RESUBMITS, which is what it then sets as
// their type, and declares `resubmit_h`, which they bring along. One that has elements of one word
// beside those that `record_h` is of defines WORDS, one that pushes into stacks of INT TELEMETRY,
// one that carries marks in the identification CARRIER_IP_ID. What one that sends notices defines,
// notices.p4 says.

#ifndef CALUMMA_HEADERS
#define CALUMMA_HEADERS

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_IPV6 = 0x86DD;
const bit<16> TYPE_VLAN = 0x8100;
const bit<16> TYPE_QINQ = 0x88A8;
const bit<16> TYPE_COLLECT = 0x88B5;  // IEEE 802, for local use

const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_SCTP = 132;

// Extension headers of IPv6, behind which no parser looks.
const bit<8> HOP_BY_HOP = 0;
const bit<8> ROUTING = 43;
const bit<8> FRAGMENT = 44;
const bit<8> AUTHENTICATION = 51;
const bit<8> DESTINATION = 60;

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
    mark_t mark;
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

// Routed by the upper halves of destinations, which name networks (RFC 4291, 2.5.1).
header ipv6_h {
    bit<4> version;
    bit<8> traffic_class;
    bit<20> flow_label;
    bit<16> payload_length;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<64> src_network;
    bit<64> src_interface;
    bit<64> dst_network;
    bit<64> dst_interface;
}

// Four bytes of IPv4 options.
header option_h {
    bit<32> bytes;
}

// What TCP, UDP and SCTP begin with: source and destination port.
header ports_h {
    bit<32> both;
}

// What a collection packet asks for; behind it the records come in, the newest first.
header collect_h {
    bit<8> source;     // counter or bucket array, as the program numbers them
    access_t access;
    index_t next;      // element that is accessed next
    bit<16> left;      // elements still to access
    bit<16> room;      // records that still fit this packet
    bit<16> limit;     // records that fit a packet
    bit<32> request;   // the agent's own number
}

// One counter, in two halves: of an 8-bit counter the upper one is 0.
header counter_h {
    bit<8> high;
    bit<8> low;
}

// First byte of what the egress gets.
const bit<8> UNMEASURED = 0;
const bit<8> MEASURED = 1;
const bit<8> CONTINUED = 2;
const bit<8> COLLECTING = 3;

// The same of a notice; also its first byte on the wire.
const bit<8> NOTICE = 0x80;

// The mirror that copies the front of a full collection packet, and the one that makes notices.
const MirrorType_t CONTINUE_MIRROR = 1;
const MirrorType_t NOTICE_MIRROR = 2;

// In front of the copy of a collection packet that goes on where the full one stopped.
header continued_h {
    bit<8> kind;
}

// One word.
header word_h {
    bit<32> word;
}

#ifdef TELEMETRY
#include "int/headers.p4"
#endif

struct headers_t {
    bridge_h bridge;           // from ingress to egress
    ethernet_h ethernet;
#ifdef NOTICES
    notice_h notice;           // in a notice on its way to the CPU
#endif
    collect_h collect;
    counter_h counter;
#ifdef WORDS
    word_h word;
#endif
    record_h record;           // one element of a register, as a collection packet takes it along
    vlan_h[2] vlan;
    ipv6_h ipv6;
    ipv4_h ipv4;
    option_h[10] options;
    ports_h ports;
#ifdef TELEMETRY
    tcp_rest_h tcp;
    udp_rest_h udp;
    int_shim_h shim;
    int_metadata_h telemetry;
    int_hop_h hop;             // pushed here
#ifndef ROLE_TRANSIT
    int_hop_h[16] taken;       // taken out here
#endif
#endif
}

// What the header checksum must give up, complemented, so that adding it subtracts (RFC 1624).
struct before_t {
    bit<16> checksum;
    bit<8> ones;               // the complement of nothing beside the ToS byte
    bit<8> tos;
    bit<16> ttl;               // what a TTL one lower changes
#ifdef CARRIER_IP_ID
    bit<16> identification;
#endif
}

// As what a packet is counted at ingress: IPv6, from a host, measured. All three bits are of IPv4 that
// is left out, since the fabric may cut it.
typedef bit<3> class_t;
const class_t IPV6 = 3w0b100;

struct metadata_t {
    bit<8> kind;               // what the egress got; at ingress: what a mirrored copy is
    MirrorId_t session;        // of the copy that goes on collecting, or of the notice
    class_t class;
    bool readable;             // IPv4 with ports, as far as the parser sees
    bit<32> ports;             // 0 where there are none
    bit<16> end;               // how long the packet must be at egress
    before_t before;
    bool changed;              // the checksum must follow
    bool from_host;
    bool measured;
    bit<1> timestamp;
    mark_t mark;
    hashes_t hashes;
#ifdef CARRIER_IP_ID
    bit<3> epoch;              // low bits of the epoch's number, the timestamp bit last
    bit<2> datagram;           // how it stands to fragmentation
    bool keyed;                // the deployment's secret is known
    bit<8> signature;          // of the mark; of a packet from the fabric, what is wrong with it
    bit<8> fate;               // what the egress gets as its kind
#endif
#ifdef RESUBMITS
    resubmit_h resubmitted;
#endif
#ifdef NOTICES
    notice_h notice;           // what is said of this packet
#endif
#ifdef TELEMETRY
    telemetry_t telemetry;
    bit<1> strips;             // whether a stack is taken out
    bit<16> taken;             // by how much the transport checksum changes
    bool readable6;            // IPv6 with ports, as far as the parser sees
#endif
}

#endif
