// What became of packets in a window, in sums of each group: one for each thing that may be said of
// a packet. Numbers 1 to 6 are what a source did with one (source.p4).

typedef bit<8> event_t;

// Things that may be said.
const bit<32> EVENTS = 128;

// From a host, while none gets a stack.
const event_t IDLE = 7;

// For a host, and recorded: without a stack, from another host of this switch, or with a stack.
const event_t PLAIN = 8;
const event_t LOCAL = 9;

// Of IPv6 and for a host, and of no flow that the switch can tell: not recorded.
const event_t UNCLASSIFIED = 10;

const event_t WITH_STACK = 16;

// More with a stack of more hops than there are places; 2 more where a switch had no hops left,
// and 1 where one had no room.
const event_t BEYOND = 4;

// More with a stack by which the key of its flow was kept.
const event_t KEPT = 8;

// More where its flow is large, and its key has found no room.
const event_t KEYLESS = 32;

// More where a latency of it is inflated.
const event_t INFLATED = 64;

// What is said of a packet, and in which group.
struct totals_t {
    access_t access;
    bit<1> group;
    event_t event;
}

// Which group a collection packet means.
control TotalsRequest(in collect_h collect, inout totals_t request) {
    action of_group(bit<1> group) {
        request.access = collect.access;
        request.group = group;
        request.event = collect.next[7:0];
    }

    table sources {
        key = { collect.source : exact; }
        actions = { of_group; NoAction; }
        const default_action = NoAction;
        const entries = {
            48 : of_group(0);
            49 : of_group(1);
        }
        size = 2;
    }

    apply {
        sources.apply();
    }
}

// Adds a packet to a sum, and gives what that is now, or gives a collection packet one.
control Totals(in totals_t request, out bit<32> sum, inout record_h record) {
    Register<bit<32>, index_t>(2 * EVENTS, 0) sums;
    RegisterAction<bit<32>, index_t, bit<32>>(sums) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
            if (request.access == RECORD) {
                value = value |+| 1;
            } else if (request.access == CLEAR) {
                value = 0;
            }
            rv = value;
        }
    };
    index_t at;

    action place() {
        at = 8w0 ++ request.group ++ request.event[6:0];
    }

    apply {
        sum = 0;
        place();
        if (request.access != NOTHING) {
            sum = touch.execute(at);
        }
        if (request.access == READ) {
            record = { sum };
        }
    }
}
