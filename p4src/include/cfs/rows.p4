// The table: rows of as many places as there are columns, for the best of the flows that chose a
// row (section III-H of the paper on Cooperative Flow Selection).
//
// A flow must be found in the last column before it takes the place of another one in the first,
// and no register is accessed twice on a pass. So a packet looks for its flow on its first pass,
// and is counted there. Where it finds none, but would stand before the worst of its row, it goes
// through the ingress once more, resubmitted, and takes that one's place, which leaves; or the
// first free place from there on. In the paper a row is in order, and each flow that comes in moves
// worse ones on by a column. A row has the same flows without that, but words that nothing moves
// need no register of their own.
//
// A count is exact if no packet of the flow came to be refused, nor was counted in an entry that
// has left. The worst standing of a full row only rises, and the filter keeps the flows out that
// were refused or have left. What happens between a packet's two passes is watched: two packets of
// a new flow on their way at once are counted both, as long as they stand alike. Where one of them
// may not have been, the flow is doubted, and has no exact count in this window. So is one whose
// packets come with another time to live than its first, or on another side, which no register has
// room to count.

control Rows(inout request_t request, in bool again, in bit<1> nowhere, in bit<32> standing,
             in bit<8> ttl, in bit<2> side, in bit<1> second, in bit<1> claimed, in bit<1> goes_on,
             in window_t window, in hashes_t hashes, in index_t row, in index_t note,
             in index_t next, inout entry_t own, inout record_h record, inout word_h word,
             out bool resubmits, out bit<1> is_second, out bit<8> place, out bit<1> watched) {
    Column() column0;
    Column() column1;
    Column() column2;
    Column() column3;
    Worse() worse01;
    Worse() worse23;
    Worse() worse0123;
#if COLUMNS > 4
    Column() column4;
    Column() column5;
    Worse() worse45;
    Worse() worse_of_all;
#endif
    Bits(2 * FILTER) filter;
    Pending() pending;
    Kinds() doubts;
    Totals(2 * EVENTS) events;
    Totals(2) evicted;
    Totals(8) claims;
    Run() run_of;
    Runs() flows;
    bit<32> there0;
    bit<32> there1;
    bit<32> there2;
    bit<32> there3;
#if COLUMNS > 4
    bit<32> there4;
    bit<32> there5;
    bit<32> of45;
    bit<32> of_all;
    bit<1> is5;
    bit<1> is45;
    bit<32> better4;
    bit<32> better5;
#endif
    bit<32> of01;
    bit<32> of23;
    bit<32> of0123;
    bit<1> is1;
    bit<1> is3;
    bit<1> is23;
    bit<32> better0;
    bit<32> better1;
    bit<32> better2;
    bit<32> better3;
    bit<32> first;
    bit<32> worst;
    gone_t gone;
    read_t words;
    access_t last;
    bit<1> found;
    bit<1> stands;
    bit<1> placed;
    bit<1> noted;
    bit<8> kinds;
    bit<8> kinds_there;
    bit<8> other_ttl;
    bit<2> other_side;
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
        better0 = standing |-| there0;
        better1 = standing |-| there1;
        better2 = standing |-| there2;
        better3 = standing |-| there3;
#if COLUMNS > 4
        better4 = standing |-| there4;
        better5 = standing |-| there5;
#endif
    }

    action compare_first() {
        other_ttl = first[7:0] ^ ttl;
        other_side = first[9:8] ^ side;
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
        gone = { 0, 0, 0 };
        words = { 0, 0, 0, 0 };
        last = NOTHING;
        first = 0;
        found = 0;
        placed = 0;
        stands = 0;
        records = 0;
        more = 0;
        event = OTHER;
        resubmits = false;
        is_second = 0;
        place = 0;
        watched = 0;
        kinds = 0;
        if (request.columns == RECORD && nowhere == 0) {
            records = 1;
        }
        column0.apply(request.column0, row, nowhere, own, request.column1, there0, found, placed,
                      first, gone, words);
        column1.apply(request.column1, row, nowhere, own, request.column2, there1, found, placed,
                      first, gone, words);
        column2.apply(request.column2, row, nowhere, own, request.column3, there2, found, placed,
                      first, gone, words);
#if COLUMNS > 4
        column3.apply(request.column3, row, nowhere, own, request.column4, there3, found, placed,
                      first, gone, words);
        column4.apply(request.column4, row, nowhere, own, request.column5, there4, found, placed,
                      first, gone, words);
        column5.apply(request.column5, row, nowhere, own, last, there5, found, placed, first, gone,
                      words);
#else
        column3.apply(request.column3, row, nowhere, own, last, there3, found, placed, first, gone,
                      words);
#endif

        // Whether the flow stands before any of its row, and where the worst one is.
        compare();
        if (better0 != 0 || better1 != 0) {
            stands = 1;
        }
        if (better2 != 0 || better3 != 0) {
            stands = 1;
        }
        worse01.apply(there0, there1, of01, is1);
        worse23.apply(there2, there3, of23, is3);
        worse0123.apply(of01, of23, of0123, is23);
        if (is23 == 1) {
            place = 6w0 ++ 1w1 ++ is3;
        } else {
            place = 7w0 ++ is1;
        }
        worst = of0123;
#if COLUMNS > 4
        if (better4 != 0 || better5 != 0) {
            stands = 1;
        }
        worse45.apply(there4, there5, of45, is5);
        worse_of_all.apply(of0123, of45, of_all, is45);
        if (is45 == 1) {
            place = 7w2 ++ is5;
        }
        worst = of_all;
#endif
        if (worst == 0) {
            place = place | FREE;
        }

        compare_first();
        at_filter = note;
        if (records == 1 && !again) {
            if (found == 1) {
                event = FOUND;
            } else if (stands == 0) {
                event = REFUSED;
                request.filter = RECORD;
            } else {
                event = SENT;
                request.filter = READ;
            }
        } else if (records == 1) {
            if (placed == 1 && gone.standing != 0) {
                event = REPLACED;
                request.filter = RECORD;
                request.evicted = RECORD;
                at_filter = gone.note[15:0];
            } else if (placed == 1) {
                event = PLACED;
            } else if (found == 1) {
                event = MET;
            } else {
                event = CROWDED_OUT;
                request.filter = RECORD;
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
            kinds = DOUBTED;
        }
        // Put in behind another packet, of this flow maybe, that has no entry any more.
        if (placed == 1 && second == 1) {
            kinds = DOUBTED;
        }
        if (records == 1 && found == 1 && placed == 0 && other_ttl != 0) {
            kinds = DOUBTED;
        }
        if (records == 1 && found == 1 && placed == 0 && other_side != 0) {
            kinds = kinds | STRAYED;
        }
        if (kinds != 0) {
            request.doubts = RECORD;
        }
        // Loops are looked for by packets that have no entry, and by those that came with another
        // time to live than their entry's first one, which no register has room for.
        if (records == 1 && !resubmits && placed == 0 && (found == 0 || other_ttl != 0)) {
            watched = 1;
        }
        doubts.apply(request.doubts, at_pending, kinds, kinds_there);
        if (!request.collects) {
            happened();
        }
        if (records == 1 && !resubmits && window.claims) {
            request.claims = RECORD;
        }
        events.apply(request.events, at_event, 1, events_there);
        evicted.apply(request.evicted, at_group, gone.packets, evicted_there);
        claims.apply(request.claims, at_claims, 1, claims_there);
        run_of.apply(hashes, run);
        if (request.collects) {
            run = 0;
        }
        flows.apply(request.flows, at_run, run, run_there);

        if (request.columns == READ || request.columns == READ_SECOND) {
            record = { words.tag, words.note, words.packets, words.last };
        } else if (request.doubts == READ) {
            word = { 24w0 ++ kinds_there };
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
