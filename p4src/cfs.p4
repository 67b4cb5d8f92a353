// Cooperative Flow Selection (CFS) on an edge or on a switch between others: exact counts of the
// flows that stand best at this one, as rows of a table (section III-H of the paper). docs/cfs.md
// says what differs from a software switch.
//
// A packet is recorded once, as it is received, in the window of the timestamp bit that it carries,
// or gets here where a host sent it; a window may last for many epochs, and its group is what the
// control plane says. All of it is in the ingress, which also knows whether a packet leaves for a
// host; loops are looked for at egress. Each part is a control in include/cfs/.

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "include/generated/hashes.p4"
#include "include/sizes.p4"
#include "include/types.p4"

// Rows of one group: the upper bits of a hash word.
#ifndef ROW_BITS
#define ROW_BITS 12
#endif
const bit<32> ROWS = 1 << ROW_BITS;

// Places of a row: 4, or 6 where there are more stages than twelve.
#ifndef COLUMNS
#define COLUMNS 4
#endif

// Bits of the filter in one group, places for packets on their way, events, and registers of the
// flows' number.
const bit<32> FILTER = 1 << 15;
const bit<32> PENDING = 1 << 12;
const bit<32> EVENTS = 1 << 4;
const bit<32> RUNS = 1 << 12;

// Flows that are pinned in both groups. There is room for twice the most that plans name, so that
// each finds a place however their hashes fall.
const bit<32> PINS = 1 << 14;

header bridge_h {
    bit<8> kind;
    bit<8> recorded;
    bit<8> stays;          // 1: from host to host of this switch
    bit<32> ttl;           // with which it came, if loops are looked for by it; else 0
    bit<16> cell;          // where its flow is looked for then
    bit<32> fingerprint;   // with the lower bits of the window's number
    bit<16> end;
}

const bit<16> BRIDGE_BYTES = 15;

// What a notice says of a packet that came with another time to live than others of its flow, in a
// stream for each group.
header notice_h {
    bit<8> kind;
    bit<8> stream;
    bit<32> number;
    bit<32> src;
    bit<32> dst;
    bit<32> ports;
    bit<8> protocol;
    bit<8> ttl;
}

// Half of the words of a place.
header record_h {
    bit<32> tag;
    bit<32> note;
    bit<32> packets;
    bit<32> last;
}

struct hashes_t {
    word_t word0;          // whose upper bits are the row
    word_t word2;          // whose lower bits say where the filter notes the flow
    word_t high;           // the word that flows are graded by
    word_t low;
    word_t high0;          // with the others: where and how a flow counts among all
    word_t high1;
    word_t low1;
}

// What a packet brings along on its second pass.
header resubmit_h {
    bit<32> standing;
    bit<8> second;         // 1: another packet was on its way already, of this flow maybe
    bit<8> place;          // the column of the worst flow of the row; FREE more: of no flow
    bit<8> timestamp;      // the bit that packets of hosts were stamped with
    bit<8> padding;
}

#define RESUBMITS 1
#define WORDS
#define NOTICES

#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/cfs/types.p4"
#include "include/collection.p4"
#include "include/cfs/request.p4"
#include "include/readable.p4"
#include "include/lanes.p4"
#include "include/cfs/flow_hash.p4"
#include "include/cfs/carried.p4"
#include "include/cfs/ends.p4"
#include "include/cfs/standing.p4"
#include "include/cfs/column.p4"
#include "include/cfs/notes.p4"
#include "include/cfs/rows.p4"
#include "include/notices.p4"
#include "include/cfs/guard.p4"
#include "include/marking.p4"
#include "include/forwarding.p4"

#define AIM(name, column, access) action name() { request.column = access; }

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Readable() readable;
    Remember() before;
    SelectionHash() flow_hash;
    Standing() standing_of;
    CollectionPath() collection;
    Forwarding() forwarding;
    Carried() carried;
    Leaves() leaves;
    Request() request_of;
    Rows() rows;
    Marking() marking;
    Counter<bit<64>, class_t>(8, CounterType_t.PACKETS) packets;
    // Packets for the network that hosts had set the bit of a claim in, in the first cell.
    Counter<bit<64>, bit<1>>(2, CounterType_t.PACKETS) taken;
    // Packets of the network that came when their window was over, in the first cell, wherever they
    // go on, if they do.
    Counter<bit<64>, bit<1>>(2, CounterType_t.PACKETS) late;
    request_t request;
    window_t window;
    entry_t own;
    bit<8> place;
    index_t row;
    index_t note;
    bit<32> standing;
    bit<8> ttl;
    bit<1> ipv6;
    bit<1> timestamp_there;
    bit<1> claimed;
    bit<1> goes_on;
    bit<1> claim;
    bit<1> has_claims;
    bit<1> to_host;
    bit<1> given;
    bit<1> pinned;
    bit<1> single;
    bit<1> enters;
    bit<1> nowhere;
    bit<2> side;
    bit<1> is_second;
    bit<1> watched;
    bit<8> recorded;
    bool marks;
    bool marks6;
    bool claims;
    bit<16> missing;
    bool again;
    bool resubmits;

    action host() {
        meta.from_host = true;
        meta.class[1:1] = 1;
    }

    table host_ports {
        key = { ig_intr_md.ingress_port : exact; }
        actions = { host; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    action set_timestamp(bit<1> value) {
        meta.timestamp = value;
        meta.mark = value ++ 2w0;
    }

    action stamp_again() {
        meta.timestamp = meta.resubmitted.timestamp[0:0];
        meta.mark = meta.resubmitted.timestamp[0:0] ++ 2w0;
    }

    table timestamp {
        actions = { set_timestamp; }
        default_action = set_timestamp(0);
        size = 1;
    }

    action ipv4_alone(bit<1> with_claims) {
        marks = true;
        has_claims = with_claims;
    }

    action both(bit<1> with_claims) {
        marks = true;
        marks6 = true;
        has_claims = with_claims;
    }

    // Which packets have a mark in this network: those of IPv4, or of IPv6 as well; and whether a
    // claim is beside it.
    table families {
        actions = { ipv4_alone; both; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    action mark6() {
        hdr.ipv6.traffic_class[7:5] = meta.mark;
    }

    action claim4() {
        hdr.ipv4.tos_rest[3:3] = claim;
        meta.changed = true;
    }

    action claim6() {
        hdr.ipv6.traffic_class[3:3] = claim;
    }

    action record_in(bit<1> group, word_t number, word_t seed_high, word_t seed_low,
                     bit<32> limit, bit<1> claims) {
        window.is_open = true;
        window.group = group;
        window.number = number;
        window.seed_high = seed_high;
        window.seed_low = seed_low;
        window.limit = limit;
        window.claims = claims == 1;
    }

    // The windows that packets are recorded in.
    table windows {
        key = { ipv6 : exact; timestamp_there : exact; }
        actions = { record_in; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    action pin() {
        pinned = 1;
    }

    // Flows that come before all others in the window of a group. Those of the next window are
    // filled in while this one is recorded.
    table pins {
        key = {
            window.group : exact;
            hdr.ipv4.src : exact;
            hdr.ipv4.dst : exact;
            meta.ports : exact;
            hdr.ipv4.protocol : exact;
        }
        actions = { pin; NoAction; }
        const default_action = NoAction;
        size = PINS;
    }

    action places() {
        row = (index_t)(window.group ++ meta.hashes.word0[15:16 - ROW_BITS]);
        note = window.group ++ meta.hashes.word2[14:0];
    }

    action of_packet() {
        own = { meta.resubmitted.standing, 1w1 ++ hdr.ipv4.protocol ++ hdr.ipv4.src[31:9],
                hdr.ipv4.dst, 1w1 ++ hdr.ipv4.src[8:0] ++ 6w0 ++ note, meta.ports, 1,
                16w0 ++ hdr.ipv4.total_length, 20w0 ++ hdr.ipv4.total_length[15:4] };
    }

    action look() {
        request.columns = RECORD;
        request.column0 = RECORD;
        request.column1 = RECORD;
        request.column2 = RECORD;
        request.column3 = RECORD;
#if COLUMNS > 4
        request.column4 = RECORD;
        request.column5 = RECORD;
#endif
    }

    AIM(seek0, column0, SEEK)
    AIM(seek1, column1, SEEK)
    AIM(seek2, column2, SEEK)
    AIM(seek3, column3, SEEK)
    AIM(take0, column0, TAKE)
    AIM(take1, column1, TAKE)
    AIM(take2, column2, TAKE)
    AIM(take3, column3, TAKE)
#if COLUMNS > 4
    AIM(seek4, column4, SEEK)
    AIM(seek5, column5, SEEK)
    AIM(take4, column4, TAKE)
    AIM(take5, column5, TAKE)
#endif

    // Where a packet on its second pass seeks a place.
    table aim {
        key = { meta.resubmitted.place : exact; }
        actions = {
            seek0; seek1; seek2; seek3; take0; take1; take2; take3;
#if COLUMNS > 4
            seek4; seek5; take4; take5;
#endif
            NoAction;
        }
        const default_action = NoAction;
        const entries = {
            0 : seek0();
            1 : seek1();
            2 : seek2();
            3 : seek3();
            8 : take0();
            9 : take1();
            10 : take2();
            11 : take3();
#if COLUMNS > 4
            4 : seek4();
            5 : seek5();
            12 : take4();
            13 : take5();
#endif
        }
        size = 16;
    }

    // Once more through the ingress, whatever else was decided.
    action once_more() {
        ig_dprsr_md.resubmit_type = RESUBMITS;
        ig_dprsr_md.drop_ctl = 0;
        meta.resubmitted.setValid();
        meta.resubmitted.standing = standing;
        meta.resubmitted.second = 7w0 ++ is_second;
        meta.resubmitted.place = place;
        meta.resubmitted.timestamp = 7w0 ++ meta.timestamp;
        meta.resubmitted.padding = 0;
    }

    action watch() {
        hdr.bridge.ttl = 24w0 ++ ttl;
        hdr.bridge.cell = CELL(meta.hashes.low1);
        hdr.bridge.fingerprint = meta.hashes.high1 ++ window.number;
    }

    apply {
        request = { false, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING,
#if COLUMNS > 4
                    NOTHING, NOTHING,
#endif
                    NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING };
        window = { false, 0, 0, 0, 0, 0, false };
        own = { 0, 0, 0, 0, 0, 0, 0, 0 };
        recorded = NO_MARK;
        claimed = 0;
        claim = 0;
        has_claims = 0;
        marks = false;
        marks6 = false;
        claims = false;
        pinned = 0;
        single = 0;
        enters = 0;
        nowhere = 0;
        side = PASSED;
        again = ig_intr_md.resubmit_flag == 1;
        ttl = hdr.ipv4.ttl;
        ig_dprsr_md.drop_ctl = 0;
        host_ports.apply();
        // The bit may have flipped since the first pass. Asked of all: whether a packet is from a
        // host is known a stage later.
        if (ig_intr_md.resubmit_flag == 1) {
            stamp_again();
        } else {
            timestamp.apply();
        }
        families.apply();
        readable.apply(hdr, meta, ig_prsr_md.parser_err, missing);
        before.apply(hdr, meta);
        collection.apply(hdr.collect, ig_intr_md.ingress_port, meta, request,
                         ig_dprsr_md, ig_tm_md);
        carried.apply(hdr, ipv6, timestamp_there);
        if (meta.from_host) {
            timestamp_there = meta.timestamp;
        }
        windows.apply();
        pins.apply();
        flow_hash.apply(hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol, window,
                        meta.hashes);
        if (!meta.from_host && window.claims) {
            claimed = hdr.ipv4.tos_rest[3:3];
        }
        places();
        if (request.collects) {
            request_of.apply(hdr.collect, request);
            row = hdr.collect.next;
        } else {
            if (!again) {
                packets.count(meta.class);
            }
            if (window.is_open && meta.measured) {
                of_packet();
                look();
                if (again) {
                    aim.apply();
                }
            }
        }
        forwarding.apply(hdr, meta.before, meta.changed, ig_intr_md.ingress_port,
                         meta.hashes.word0, request.collects, ig_dprsr_md, ig_tm_md);

        // On which side it is. What a host has sent and has no way to go on enters nowhere.
        leaves.apply(ig_tm_md.ucast_egress_port, ig_dprsr_md.drop_ctl, to_host, given);
        if (meta.from_host) {
            side = ENTERED;
            if (ig_dprsr_md.drop_ctl == 0) {
                single = to_host;
                enters = ~to_host;
            } else if (!again) {
                nowhere = 1;
            }
        } else if (to_host == 1) {
            side = LEFT;
        }
        if ((marks && meta.measured) || (marks6 && ipv6 == 1)) {
            if (!meta.from_host) {
                recorded = UNRECORDED;
            }
        }
        if (window.is_open && (meta.measured || ipv6 == 1) && nowhere == 0) {
            request.events = RECORD;
            recorded = RECORDED;
        }
        if (recorded == UNRECORDED) {
            late.count(0);
        }

        standing_of.apply(meta.hashes, ttl, claimed, pinned, single, side, window, standing,
                          goes_on);
        if (to_host == 1) {
            goes_on = 0;
        }
        rows.apply(request, again, nowhere, standing, ttl, side, meta.resubmitted.second[0:0],
                   claimed, goes_on, window, meta.hashes, row, note, hdr.collect.next, own,
                   hdr.record, hdr.word, resubmits, is_second, place, watched);
        if (resubmits) {
            once_more();
        }

        hdr.bridge = { UNMEASURED, recorded, 7w0 ++ single, 0, 0, 0, 0 };
        if (watched == 1) {
            watch();
        }
        if (request.collects) {
            hdr.bridge.kind = COLLECTING;
        } else if (meta.measured) {
            hdr.bridge.kind = MEASURED;
            hdr.bridge.end = meta.end;
        }

        // Claims begin and end with the network: hosts get the bit of their port. What goes from
        // host to host is never in it, and stays as it is.
        claim = goes_on;
        claims = window.claims;
        if (single == 1) {
            claims = false;
            has_claims = 0;
            marks = false;
            marks6 = false;
        } else if (has_claims == 1 && to_host == 1) {
            claim = given;
            claims = true;
        } else if (has_claims == 1 && meta.from_host && !window.claims) {
            claim = 0;
            claims = true;
        }
        if (has_claims == 1 && enters == 1 && !again) {
            if (meta.measured && hdr.ipv4.tos_rest[3:3] == 1) {
                taken.count(0);
            } else if (marks6 && ipv6 == 1 && hdr.ipv6.traffic_class[3:3] == 1) {
                taken.count(0);
            }
        }
        if (claims && meta.measured && hdr.ipv4.tos_rest[3:3] != claim) {
            claim4();
        } else if (has_claims == 1 && marks6 && ipv6 == 1 && (to_host == 1 || meta.from_host)) {
            if (to_host == 0) {
                claim = 0;
            }
            claim6();
        }
        if (marks && meta.measured && meta.from_host) {
            marking.apply(hdr.ipv4.mark, meta.mark, meta.changed);
        } else if (marks6 && ipv6 == 1 && meta.from_host) {
            mark6();
        }
    }
}

control Egress(inout headers_t hdr, inout metadata_t meta,
               in egress_intrinsic_metadata_t eg_intr_md,
               in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
               inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
               inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Remember() before;
    Marking() marking;
    CollectionProgress() progress;
    Guard() guard;
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    mark_t given_back;
    bit<1> to_host;
    bit<16> missing;
    bool takes_back6;

    action host(bit<3> dscp) {
        to_host = 1;
        given_back = dscp;
    }

    table host_ports {
        key = { eg_intr_md.egress_port : exact; }
        actions = { host; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    action take_back() {
        takes_back6 = false;
    }

    action take_back_both() {
        takes_back6 = true;
    }

    // Of which packets for hosts the mark is taken out: of IPv4, or of IPv6 as well.
    table sinks {
        actions = { take_back; take_back_both; }
        default_action = take_back_both();
        size = 1;
    }

    action give_back6() {
        hdr.ipv6.traffic_class[7:5] = given_back;
    }

    action compare() {
        missing = meta.end |-| eg_intr_md.pkt_length;
    }

    action discard() {
        eg_dprsr_md.drop_ctl = 1;
        to_host = 0;
    }

    apply {
        given_back = 0;
        to_host = 0;
        before.apply(hdr, meta);
        host_ports.apply();
        sinks.apply();
        compare();
        if (meta.kind == COLLECTING || meta.kind == CONTINUED) {
            progress.apply(hdr.collect, meta.kind);
        } else if (meta.kind == NOTICE) {
            hdr.ethernet.type = TYPE_COLLECT;
        } else if (missing != 0) {
            discard();
        } else if (hdr.bridge.recorded == RECORDED) {
            packets.count(1);
        }
        if (meta.kind == MEASURED && to_host == 1 && hdr.bridge.stays == 0) {
            marking.apply(hdr.ipv4.mark, given_back, meta.changed);
        } else if (takes_back6 && hdr.ipv6.isValid() && to_host == 1 && hdr.bridge.stays == 0) {
            give_back6();
        }
        if (meta.kind == MEASURED && hdr.bridge.ttl != 0) {
            guard.apply(hdr, meta, eg_dprsr_md);
        }
        hdr.bridge.setInvalid();
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
