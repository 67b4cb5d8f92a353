// Headers that no other switch sees: what a packet has from the ingress to the egress, a notice to
// the CPU, and a counter in a collection packet. Beside them, the words of a flow.

header bridge_h {
    bit<8> kind;
    bit<48> arrived;
    bit<6> dscp;               // as it came
    bit<1> from_host;
    bit<1> strips;             // its stack is to be taken out
#ifndef ROLE_TRANSIT
    word_t counter8;           // of its flow, in the tower of sizes
    word_t counter16;
    word_t counter32;
    word_t pair0;              // in the towers of pairs, before any switch
    word_t pair1;
    word_t pair2;
    bit<1> timestamp;          // of the window that it belongs to
    bit<1> known6;             // whether it is of IPv6, and of a flow that the words are of
    bit<6> padding;
#endif
    bit<16> end;
}

#ifdef ROLE_TRANSIT
const bit<16> BRIDGE_BYTES = 10;
#else
const bit<16> BRIDGE_BYTES = 23;
#endif

#ifndef ROLE_TRANSIT
#define NOTICES

// A notice of a packet with inflated latencies, or of one by which its flow's key was kept.
header notice_h {
    bit<8> kind;
    bit<8> stream;             // the sum of what became of packets that the packet is in: group, event
    bit<32> number;            // the sum with it
    bit<8> turn;               // low bits of the window's number
    bit<8> places;             // where, this switch's bit the lowest; of the other kind the highest
                               // bit, and below it words of the stack as its shim has them
    bit<32> first_node;        // the first of these switches, and the latency there; of the other
    bit<32> first_latency;     // kind, the first five switches of the stack, the source first
    bit<32> last_node;
    bit<32> last_latency;
    bit<32> fifth;
    bit<16> type;              // the packet's own, in front of what it has behind Ethernet
}
#endif

// A counter. A switch between others has none.
header record_h {
    bit<32> count;
}

#ifndef ROLE_TRANSIT
// The words of a flow for towers of pairs, as far as the arrays' indexes need them.
struct pair_words_t {
    word_t first;
    word_t second;
    word_t third;
}
#endif

struct hashes_t {
    word_t word0;
#ifndef ROLE_TRANSIT
    word_t counter8;
    word_t counter16;
    word_t counter32;
    pair_words_t pairs;
#endif
}
