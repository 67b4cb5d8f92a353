// What Cooperative Flow Selection (CFS) knows of a flow, and what packets do to its table.

// Columns look for a packet's flow and count it (RECORD), look for the place of a flow that has no
// entry, which is that of a worse one (SEEK) or a free one (TAKE), or have it put in (PUT).
const access_t SEEK = 8;
const access_t TAKE = 16;
const access_t PUT = 32;

// Of the place that a packet on its second pass takes: it was free.
const bit<8> FREE = 8;

// Of two words, a collection packet reads the first (READ) or the second one.
const access_t READ_SECOND = 3;

// An entry, as the registers of a column hold it. A free place has zeros.
struct entry_t {
    bit<32> standing;      // more is better: 0 (2), class (2), grade (18), first side (2), TTL (8)
    bit<32> tag;           // 1 (1), protocol (8), source address but for the last bits (23)
    bit<32> dst;
    bit<32> note;          // 1 (1), the last bits (9), 0 (6), where the filter notes the flow (16)
    bit<32> ports;
    bit<32> packets;
    bit<32> bytes;         // modulo 2^32
    bit<32> sixteenths;    // of the bytes, of each packet whole ones: tell the bytes beyond 2^32
}

// What was in the place that a flow has taken.
struct gone_t {
    bit<32> standing;
    bit<32> note;
    bit<32> packets;
}

// What a collection packet takes along of a place: the first words, and how its flow stands, or the
// second ones, and the sixteenths.
struct read_t {
    bit<32> tag;
    bit<32> note;
    bit<32> packets;
    bit<32> last;
}

// On which side a packet is: from fabric to fabric, from a host, or from the fabric for a host.
const bit<2> PASSED = 0;
const bit<2> ENTERED = 1;
const bit<2> LEFT = 2;

// What is counted of a packet: nothing, as it has no mark or enters in no window; that it was
// recorded, as it leaves; or that it could not be, as it comes.
const bit<8> NO_MARK = 0;
const bit<8> RECORDED = 1;
const bit<8> UNRECORDED = 2;

// Why a flow is doubted: its entry may lack a packet, or some came with another time to live than
// the first one; or on another side.
const bit<8> DOUBTED = 1;
const bit<8> STRAYED = 2;

// Above all standings: says that a place keeps its entry, and that this one stands alike.
const bit<32> STAYS = 0x80000000;
const bit<32> STAYS_ALIKE = 0xC0000000;

// The window that a packet belongs to.
struct window_t {
    bool is_open;
    bit<1> group;
    word_t number;         // the lower bits of its number, of which the lowest is the group
    word_t seed_high;
    word_t seed_low;
    bit<32> limit;         // the complement of the grade below which flows are claimed
    bool claims;
}

// What a packet does to each part of the table.
struct request_t {
    bool collects;
    access_t columns;      // to one of them; the rest is for packets that are recorded as well
    access_t column0;
    access_t column1;
    access_t column2;
    access_t column3;
#if COLUMNS > 4
    access_t column4;
    access_t column5;
#endif
    access_t filter;
    access_t pending;
    access_t doubts;
    access_t events;
    access_t evicted;
    access_t claims;
    access_t flows;
}

// What became of a packet on this pass.
const bit<4> FOUND = 0;        // counted in an entry
const bit<4> SENT = 1;         // resubmitted, to be put in
const bit<4> REFUSED = 2;      // of a flow that was not noted yet
const bit<4> REFUSED_AGAIN = 3;
const bit<4> FILTERED = 4;     // of a flow that would be put in, but for the filter
const bit<4> PLACED = 5;       // put in on its second pass, and nothing had to go
const bit<4> REPLACED = 6;     // the same, and a flow was evicted
const bit<4> MET = 7;          // counted on its second pass, in an entry that another had made
const bit<4> CROWDED_OUT = 8;  // refused on its second pass
const bit<4> OTHER = 9;        // of no flow that the table could hold
