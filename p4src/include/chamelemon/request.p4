// Which of ChameleMon's registers a collection packet means. Sources: 0 and 1 are the classifier's
// arrays, 2 to 4 the upstream encoder's, 5 to 7 the downstream encoder's.

// Which register a collection packet means, in the gress whose first array has the number `first`.
control Request(in collect_h collect, inout request_t request)(bit<8> first) {
    action level0() { request.level0 = collect.access; }
    action level1() { request.level1 = collect.access; }
    action array0() { request.array0 = collect.access; }
    action array1() { request.array1 = collect.access; }
    action array2() { request.array2 = collect.access; }

    table source {
        key = { collect.source : exact; }
        actions = { level0; level1; array0; array1; array2; NoAction; }
        const default_action = NoAction;
        const entries = {
            first : array0();
            first + 1 : array1();
            first + 2 : array2();
            0 : level0();
            1 : level1();
        }
        size = 5;
    }

    apply {
        source.apply();
    }
}
