// Which part of the table a collection packet means, by the number of its source. The filter and
// the packets on their way are cleared and never read.

control Request(in collect_h collect, inout request_t request) {
    action column0() { request.column0 = collect.access; }
    action column1() { request.column1 = collect.access; }
    action column2() { request.column2 = collect.access; }
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
            column0; column1; column2; doubts; events; evicted; claims; flows; filter; pending;
            NoAction;
        }
        const default_action = NoAction;
        const entries = {
            0 : column0();
            1 : column1();
            2 : column2();
            3 : doubts();
            4 : events();
            5 : evicted();
            6 : claims();
            7 : flows();
            8 : filter();
            9 : pending();
        }
        size = 10;
    }

    apply {
        sources.apply();
    }
}
