// The table: rows of as many places as there are columns, the best of the flows that chose a row in
// its first one (section III-H of the paper on Cooperative Flow Selection).
//
// A flow must be found in the last column before it takes the place of another one in the first,
// and no register is accessed twice on a pass. So a packet looks for its flow on its first pass, and
// is counted there. Where it finds none, but would stand before the last of its row, it goes through
// the ingress once more, resubmitted, and seeks a place: from there on each flow moves on by a
// column, and that of the last one leaves.
//
// A count is exact if no packet of the flow came to be refused, nor was counted in an entry that has
// left. The last standing of a full row only rises, and the filter keeps the flows out that were
// refused or have left. What happens between a packet's two passes is watched: two packets of a new
// flow on their way at once are counted both, as long as they stand alike. Where one of them may
// not have been, the flow is doubted, and has no exact count in this window. So is one whose packets
// come with another time to live than its first, which no register has room to count.

control Rows(inout request_t request, in bool again, in bit<32> standing, in bit<8> ttl,
             in bit<1> second, in bit<1> claimed, in bit<1> goes_on, in window_t window,
             in hashes_t hashes, in index_t row, in index_t note, in index_t next,
             inout entry_t moving, inout record_h record, inout word_h word, out bool resubmits,
             out bit<1> is_second) {
    Column() column0;
    Column() column1;
    Column() column2;
    Bits(2 * FILTER) filter;
    Pending() pending;
    Bits(2 * PENDING) doubts;
    Totals(2 * EVENTS) events;
    Totals(2) evicted;
    Totals(8) claims;
    Run() run_of;
    Runs() flows;
    entry_t there;
    access_t last;
    bit<1> found;
    bit<1> placed;
    bit<1> noted;
    bit<1> was_doubted;
    bit<32> better;
    bit<8> other_ttl;
    bit<16> waiting;
    bit<16> more;
    bit<4> event;
    bit<1> records;
    index_t at_filter;
    index_t at_pending;
    index_t at_event;
    index_t at_claims;
    index_t at_group;
    index_t at_run;
    bit<8> run;
    bit<8> run_there;
    bit<32> events_there;
    bit<32> evicted_there;
    bit<32> claims_there;

    action compare() {
        better = standing |-| there.standing;
    }

    action compare_ttl() {
        other_ttl = there.standing[7:0] ^ ttl;
    }

    // Where the packet is noted and counted beside the table.
    action narrow() {
        at_pending = 3w0 ++ note[15:15] ++ note[11:0];
        at_claims = 13w0 ++ window.group ++ goes_on ++ claimed;
        at_group = 15w0 ++ window.group;
        at_run = 3w0 ++ window.group ++ hashes.high0[15:4];
    }

    action happened() {
        at_event = 11w0 ++ window.group ++ event;
    }

    action collecting() {
        at_filter = next;
        at_pending = next;
        at_event = next;
        at_claims = next;
        at_group = next;
        at_run = next;
    }

    apply {
        there = { 0, 0, 0, 0, 0, 0, 0, 0 };
        last = NOTHING;
        found = 0;
        placed = 0;
        records = 0;
        better = 0;
        more = 0;
        event = OTHER;
        resubmits = false;
        is_second = 0;
        if (request.column0 == RECORD || request.column0 == SEEK) {
            records = 1;
        }
        column0.apply(request.column0, row, moving, request.column1, there, found, placed);
        column1.apply(request.column1, row, moving, request.column2, there, found, placed);
        column2.apply(request.column2, row, moving, last, there, found, placed);

        // `there` is what the packet has met last: its flow, or the last place of the row.
        compare_ttl();
        at_filter = note;
        if (records == 1 && !again) {
            compare();
            if (found == 1) {
                event = FOUND;
            } else if (better == 0) {
                event = REFUSED;
                request.filter = RECORD;
            } else {
                event = SENT;
                request.filter = READ;
            }
        } else if (records == 1) {
            if (found == 1) {
                event = MET;
            } else if (last == SEEK) {
                event = CROWDED_OUT;
                request.filter = RECORD;
            } else if (last == SHIFT) {
                event = REPLACED;
                request.filter = RECORD;
                request.evicted = RECORD;
                at_filter = moving.rest[15:0];
            } else {
                event = PLACED;
            }
        }
        narrow();
        if (request.collects) {
            collecting();
        }
        filter.apply(request.filter, at_filter, noted);

        if (event == SENT && noted == 0) {
            resubmits = true;
            more = 1;
        } else if (event == SENT) {
            event = FILTERED;
        } else if (event == REFUSED && noted == 1) {
            event = REFUSED_AGAIN;
        } else if (again && records == 1) {
            more = 0xFFFF;
        }
        if (records == 1) {
            request.pending = RECORD;
            request.flows = RECORD;
        }
        pending.apply(request.pending, at_pending, more, waiting);
        if (resubmits && waiting != 0) {
            is_second = 1;
        }

        // Refused while another packet, of this flow maybe, is on its way to be put in.
        if ((event == REFUSED || event == REFUSED_AGAIN || event == FILTERED) && waiting != 0) {
            request.doubts = RECORD;
        }
        // Put in behind another packet, of this flow maybe, that has no entry any more.
        if (placed == 1 && second == 1) {
            request.doubts = RECORD;
        }
        if (found == 1 && other_ttl != 0) {
            request.doubts = RECORD;
        }
        doubts.apply(request.doubts, at_pending, was_doubted);
        if (!request.collects) {
            happened();
        }
        if (records == 1 && !resubmits && window.claims) {
            request.claims = RECORD;
        }
        events.apply(request.events, at_event, 1, events_there);
        evicted.apply(request.evicted, at_group, moving.packets, evicted_there);
        claims.apply(request.claims, at_claims, 1, claims_there);
        run_of.apply(hashes, run);
        if (request.collects) {
            run = 0;
        }
        flows.apply(request.flows, at_run, run, run_there);

        if (request.column0 == READ || request.column1 == READ || request.column2 == READ) {
            record = { there.standing, there.src, there.dst, there.ports, there.rest,
                       there.packets, there.bytes, there.sixteenths };
        } else if (request.doubts == READ) {
            word = { 31w0 ++ was_doubted };
        } else if (request.events == READ) {
            word = { events_there };
        } else if (request.evicted == READ) {
            word = { evicted_there };
        } else if (request.claims == READ) {
            word = { claims_there };
        } else if (request.flows == READ) {
            word = { 24w0 ++ run_there };
        }
    }
}
