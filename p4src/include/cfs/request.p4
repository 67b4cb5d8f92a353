// Which part of the table a collection packet means, by the number of its source. The filter and
// the packets on their way are cleared and never read.

// The first eight numbers are columns.
#define COLUMN(name) action name() { \
    request.columns = collect.access; request.name = collect.access; }

control Request(in collect_h collect, inout request_t request) {
    COLUMN(column0)
    COLUMN(column1)
    COLUMN(column2)
    COLUMN(column3)
#if COLUMNS > 4
    COLUMN(column4)
    COLUMN(column5)
#endif
    action doubts() { request.doubts = collect.access; }
    action events() { request.events = collect.access; }
    action evicted() { request.evicted = collect.access; }
    action claims() { request.claims = collect.access; }
    action flows() { request.flows = collect.access; }
    action filter() { request.filter = collect.access; }
    action pending() { request.pending = collect.access; }

    table sources {
        key = { collect.source : exact; }
        actions = {
            column0; column1; column2; column3;
#if COLUMNS > 4
            column4; column5;
#endif
            doubts; events; evicted; claims; flows; filter; pending;
            NoAction;
        }
        const default_action = NoAction;
        const entries = {
            0 : column0();
            1 : column1();
            2 : column2();
            3 : column3();
#if COLUMNS > 4
            4 : column4();
            5 : column5();
#endif
            8 : doubts();
            9 : events();
            10 : evicted();
            11 : claims();
            12 : flows();
            13 : filter();
            14 : pending();
        }
        size = 16;
    }

    apply {
        sources.apply();
    }
}
