// The keys of flows that have had more packets than the controller says, by their counters in the
// tower of sizes (section V-A of the SketchINT paper). A flow has a place in each of two tables, by
// other words, and the first packet that finds one free takes it: it alone writes the entry, all of
// it on its way through. So no entry is made of two flows. A flow that finds others in both places
// is counted.
//
// Whose entries are, each table has in a register of its own, as a packet may have to look in both.
// The rest of their keys is in one register, as it then has to do with one entry at most.

// Entries of a table in one group.
const bit<32> LARGE = 512;

// What is done to the second half of an entry, beside READ and READ_PACKETS.
const access_t STORE = 5;
const access_t COMPARE = 6;

struct entry_t {
    bit<32> first;
    bit<32> second;
}

// What a packet does to the registers, and in which group; a collection packet to one of them.
struct large_t {
    access_t owners0;
    access_t owners1;
    access_t rest;
    bit<1> group;
}

// Whose entries are: the protocol, beside a bit that is always set and hash bits of the flow, and
// the source address.
control Owners(in access_t access, in index_t at, in bit<32> tag, in bit<32> src,
               inout bit<32> there) {
    Register<entry_t, index_t>(2 * LARGE, { 0, 0 }) owners;
    // Gives who is there.
    RegisterAction<entry_t, index_t, bit<32>>(owners) claim = {
        void apply(inout entry_t value, out bit<32> rv) {
            rv = value.first;
            if (value.first == 0) {
                value.first = tag;
                value.second = src;
            }
        }
    };
    RegisterAction<entry_t, index_t, bit<32>>(owners) read_tag = {
        void apply(inout entry_t value, out bit<32> rv) {
            rv = value.first;
        }
    };
    RegisterAction<entry_t, index_t, bit<32>>(owners) read_src = {
        void apply(inout entry_t value, out bit<32> rv) {
            rv = value.second;
        }
    };
    RegisterAction<entry_t, index_t, bit<32>>(owners) clear = {
        void apply(inout entry_t value) {
            value.first = 0;
            value.second = 0;
        }
    };

    action claim_one() { there = claim.execute(at); }
    action read_first() { there = read_tag.execute(at); }
    action read_second() { there = read_src.execute(at); }
    action clear_one() { clear.execute(at); }

    table access_to {
        key = { access : exact; }
        actions = { claim_one; read_first; read_second; clear_one; NoAction; }
        const default_action = NoAction;
        const entries = {
            RECORD : claim_one();
            READ : read_first();
            READ_PACKETS : read_second();
            CLEAR : clear_one();
        }
        size = 4;
    }

    apply {
        access_to.apply();
    }
}

// The rest of the keys of both tables, the second one's behind the first one's: destination address
// and ports. A collection packet has neither, and clears by storing that.
control Rest(in access_t access, in index_t at, in bit<32> dst, in bit<32> ports,
             inout bit<32> same, inout bit<32> word) {
    Register<entry_t, index_t>(4 * LARGE, { 0, 0 }) rest;
    RegisterAction<entry_t, index_t, bit<32>>(rest) store = {
        void apply(inout entry_t value) {
            value.first = dst;
            value.second = ports;
        }
    };
    // Gives the address, which no packet has that is 0, where both are there.
    RegisterAction<entry_t, index_t, bit<32>>(rest) compare = {
        void apply(inout entry_t value, out bit<32> rv) {
            if (value.first == dst && value.second == ports) {
                rv = value.first;
            }
        }
    };
    RegisterAction<entry_t, index_t, bit<32>>(rest) read_dst = {
        void apply(inout entry_t value, out bit<32> rv) {
            rv = value.first;
        }
    };
    RegisterAction<entry_t, index_t, bit<32>>(rest) read_ports = {
        void apply(inout entry_t value, out bit<32> rv) {
            rv = value.second;
        }
    };

    action store_one() { store.execute(at); }
    action compare_one() { same = compare.execute(at); }
    action read_first() { word = read_dst.execute(at); }
    action read_second() { word = read_ports.execute(at); }

    table access_to {
        key = { access : exact; }
        actions = { store_one; compare_one; read_first; read_second; NoAction; }
        const default_action = NoAction;
        const entries = {
            STORE : store_one();
            COMPARE : compare_one();
            READ : read_first();
            READ_PACKETS : read_second();
            CLEAR : store_one();
        }
        size = 8;
    }

    apply {
        access_to.apply();
    }
}

// Whose a table's entries are. A packet whose flow `waits` for a place takes a free one, or finds
// its tag there, so that it waits no longer; what it then does to the rest of that entry is
// `second`, and which one that is `entry`. Another flow of the same tag has no place in the next
// table either.
control LargeTable(in access_t access, in index_t at, in index_t own, in bit<32> tag,
                   in bit<32> src, inout bit<1> waits, inout bit<1> kept, inout access_t second,
                   inout index_t entry, inout bit<32> word) {
    Owners() owners;
    access_t first;
    bit<32> there;

    action there_is() {
        waits = 0;
        entry = own;
    }

    apply {
        first = access;
        there = 0;
        if (access == RECORD && waits == 0) {
            first = NOTHING;
        }
        owners.apply(first, at, tag, src, there);
        if (first == RECORD && there == 0) {
            second = STORE;
            kept = 1;
            there_is();
        } else if (first == RECORD && there == tag) {
            second = COMPARE;
            there_is();
        } else if (first == READ || first == READ_PACKETS) {
            word = there;
        }
    }
}

// Which register and group a collection packet means: 42 and 44 the owners of each table, 46 the
// rest of both, and one more the second group.
control LargeRequest(in collect_h collect, inout large_t request) {
    action of_owners0(bit<1> group) {
        request.owners0 = collect.access;
        request.group = group;
    }

    action of_owners1(bit<1> group) {
        request.owners1 = collect.access;
        request.group = group;
    }

    action of_rest(bit<1> group) {
        request.rest = collect.access;
        request.group = group;
    }

    table sources {
        key = { collect.source : exact; }
        actions = { of_owners0; of_owners1; of_rest; NoAction; }
        const default_action = NoAction;
        const entries = {
            42 : of_owners0(0);
            43 : of_owners0(1);
            44 : of_owners1(0);
            45 : of_owners1(1);
            46 : of_rest(0);
            47 : of_rest(1);
        }
        size = 6;
    }

    apply {
        sources.apply();
    }
}

// Keeps the flow of a packet that is recorded and whose counters are what `sizes` says, or gives a
// collection packet half of half an entry.
control Large(in headers_t hdr, in bit<32> ports, in sizes_t sizes, in pair_words_t words,
              in word_t more, in bool records, inout large_t request, inout event_t event,
              inout record_h record) {
    LargeTable() table0;
    LargeTable() table1;
    Rest() rest;
    Hash<index_t>(HashAlgorithm_t.XOR16) xor0;
    Hash<index_t>(HashAlgorithm_t.XOR16) xor1;
    // Packets of large flows: 0 whose key is there, 1 whose key found no room.
    Counter<bit<64>, bit<1>>(2, CounterType_t.PACKETS) packets;
    bit<8> over8;
    bit<16> over16;
    bit<32> over32;
    index_t at0;
    index_t at1;
    index_t rest0;
    index_t rest1;
    index_t entry;
    bit<32> same;
    bit<32> tag;
    bit<32> src;
    bit<32> dst;
    bit<32> own_ports;
    bit<32> word;
    bit<1> waits;
    bit<1> kept;

    // How many packets a flow has at most that is not large, as each array can say it: no more than
    // one less than its counters' maximum, at which they stand for any number.
    action above(bit<8> most8, bit<16> most16, bit<32> most32) {
        over8 = sizes.of_8 |-| most8;
        over16 = sizes.of_16 |-| most16;
        over32 = sizes.of_32 |-| most32;
    }

    table threshold {
        actions = { above; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    // Words of collection packets are elements.
    action place_of_rest() {
        rest0 = 5w0 ++ request.group ++ 1w0 ++ words.first[8:0];
        rest1 = 5w0 ++ request.group ++ 1w1 ++ words.second[8:0];
        entry = 5w0 ++ request.group ++ words.first[9:0];
    }

    action place() {
        at0 = xor0.get({ 6w0, request.group, words.first[8:0] });
        at1 = xor1.get({ 6w0, request.group, words.second[8:0] });
    }

    action of_flow() {
        tag = words.third ++ more[6:0] ++ 1w1 ++ hdr.ipv4.protocol;
        src = hdr.ipv4.src;
        dst = hdr.ipv4.dst;
        own_ports = ports;
    }

    apply {
        over8 = 0;
        over16 = 0;
        over32 = 0;
        tag = 0;
        src = 0;
        dst = 0;
        own_ports = 0;
        word = 0;
        same = 0;
        waits = 0;
        kept = 0;
        place();
        place_of_rest();
        if (records) {
            of_flow();
            threshold.apply();
        }
        // No entry has room for addresses of IPv6.
        if (over8 != 0 && over16 != 0 && over32 != 0) {
            if (hdr.ipv4.isValid()) {
                waits = 1;
            }
            request.owners0 = RECORD;
            request.owners1 = RECORD;
        }
        table0.apply(request.owners0, at0, rest0, tag, src, waits, kept, request.rest, entry, word);
        table1.apply(request.owners1, at1, rest1, tag, src, waits, kept, request.rest, entry, word);
        rest.apply(request.rest, entry, dst, own_ports, same, word);
        // Of packets without a stack that is said already.
        if (request.rest == STORE) {
            event = event | KEPT;
        }
        if (same != 0) {
            kept = 1;
        }
        if (request.owners0 == RECORD) {
            if (kept == 1) {
                packets.count(0);
            } else {
                packets.count(1);
                event = event | KEYLESS;
            }
        } else if (request.owners0 == READ || request.owners0 == READ_PACKETS
                   || request.owners1 == READ || request.owners1 == READ_PACKETS
                   || request.rest == READ || request.rest == READ_PACKETS) {
            record = { word };
        }
    }
}
