// How a flow stands at this switch: by its grade, by whether a switch before has claimed it, by
// whether it goes to a host of the same switch, so that no other one has it, and by whether it is
// pinned.
//
// Grades are those of the rule `fold` (docs/contract.md, "Selection"), complemented, so that more
// is better and an empty register the worst.

#define FOLD(name, n) action name() { folded = word << n; }

control Standing(in hashes_t hashes, in bit<8> ttl, in bit<1> claimed, in bit<1> pinned,
                 in bit<1> single, in bit<2> side, in window_t window, out bit<32> standing,
                 out bit<1> goes_on) {
    bit<32> word;
    bit<32> folded;
    bit<32> grade;         // complemented
    bit<32> over;
    bit<2> class;
    bit<1> first;

    action join() {
        word = hashes.high ++ hashes.low;
    }

    // The first hop folds nothing: its grade is the distance from either end.
    action unfolded() {
        folded = word;
        first = 1;
    }

    FOLD(fold0, 0)
    FOLD(fold1, 1)
    FOLD(fold2, 2)
    FOLD(fold3, 3)
    FOLD(fold4, 4)
    FOLD(fold5, 5)
    FOLD(fold6, 6)
    FOLD(fold7, 7)
    FOLD(fold8, 8)
    FOLD(fold9, 9)
    FOLD(fold10, 10)
    FOLD(fold11, 11)
    FOLD(fold12, 12)
    FOLD(fold13, 13)
    FOLD(fold14, 14)
    FOLD(fold15, 15)

    // From the time to live to the hop, as the deployment numbers them.
    table hops {
        key = { ttl : exact; }
        actions = {
            unfolded; fold0; fold1; fold2; fold3; fold4; fold5; fold6; fold7; fold8; fold9; fold10;
            fold11; fold12; fold13; fold14; fold15;
        }
        const default_action = unfolded;
        size = 256;
    }

    action keep() {
        grade = folded;
    }

    action complement() {
        grade = ~folded;
    }

    // The complement of folded - 2^31.
    action above() {
        grade = 0x7FFFFFFF - folded;
    }

    // The complement of 2^31 - folded.
    action below() {
        grade = folded + 0x7FFFFFFF;
    }

    table distance {
        key = { first : exact; folded[31:31] : exact; }
        actions = { keep; complement; above; below; }
        const entries = {
            (1, 0) : complement();
            (1, 1) : keep();
            (0, 0) : below();
            (0, 1) : above();
        }
        size = 4;
    }

    action stand() {
        standing = 2w0 ++ class ++ grade[31:14] ++ side ++ ttl;
    }

    action compare() {
        over = grade |-| window.limit;
    }

    apply {
        join();
        first = 0;
        grade = 0;
        // The complements of `pinned`, 0, `single`, 1, `unclaimed`, 2, and `claimed`, 3. Pinned
        // flows of a row stand by their grades, too, so that hardly any two stand alike.
        class = 1;
        if (pinned == 1) {
            class = 3;
        } else if (single == 1) {
            class = 2;
        } else if (claimed == 1) {
            class = 0;
        }
        hops.apply();
        distance.apply();
        stand();
        compare();
        goes_on = claimed;
        if (over != 0) {
            goes_on = 1;
        }
    }
}
