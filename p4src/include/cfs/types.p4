// What Cooperative Flow Selection (CFS) knows of a flow, and what packets do to its table.

// Columns look for a packet's flow and count it (RECORD), look for the place of a flow that has no
// entry (SEEK), or put in what moves and take out what was there (SHIFT, and CLEAR for collection
// packets, with which nothing moves).
const access_t SEEK = 8;
const access_t SHIFT = 16;

// An entry, as eight registers of a column hold it. A free place has zeros.
struct entry_t {
    bit<32> standing;      // the larger, the better: 0, class (2), grade (21), first TTL (8)
    bit<32> src;
    bit<32> dst;
    bit<32> ports;
    bit<32> rest;          // protocol (8), 1 (8), where the filter notes the flow (16)
    bit<32> packets;
    bit<32> bytes;         // modulo 2^32
    bit<32> sixteenths;    // of the bytes, of each packet whole ones: tell the bytes beyond 2^32
}

// Above all standings: says that a place keeps its entry.
const bit<32> STAYS = 0x80000000;

// The window that a packet belongs to.
struct window_t {
    bool is_open;
    bit<1> group;
    word_t seed_high;
    word_t seed_low;
    bit<32> limit;         // the complement of the grade below which flows are claimed
    bool claims;
}

// What a packet does to each part of the table.
struct request_t {
    bool collects;
    access_t column0;
    access_t column1;
    access_t column2;
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
