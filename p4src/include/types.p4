// Types that all files share.

#ifndef CALUMMA_TYPES
#define CALUMMA_TYPES

typedef bit<48> mac_t;
typedef bit<16> word_t;      // hash word of a bucket array, as far as indexes need it
typedef bit<16> index_t;     // bucket or counter of a register that holds both groups
typedef bit<3> mark_t;       // timestamp bit, then ChameleMon's hierarchy: what travels with a packet

// What a packet does to a register. Ordinary packets record; collection packets do the rest, one
// at a time.
typedef bit<8> access_t;
const access_t NOTHING = 0;
const access_t RECORD = 1;
const access_t READ = 2;
const access_t CLEAR = 4;

#endif
