// Cooperative Flow Selection (CFS) on a switch between others: exact counts of the flows that stand
// best at this one, as rows of a table (section III-H of the paper). docs/cfs.md says what differs
// from a software switch.
//
// A packet is recorded as it is received, in the window of the timestamp bit that it carries; a
// window may last for many epochs, and its group is what the control plane says. All of it is in
// the ingress. Each part is a control in include/cfs/.

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

// Bits of the filter in one group, places for packets on their way, events, and registers of the
// flows' number.
const bit<32> FILTER = 1 << 15;
const bit<32> PENDING = 1 << 12;
const bit<32> EVENTS = 1 << 4;
const bit<32> RUNS = 1 << 12;

header bridge_h {
    bit<8> kind;
    bit<8> recorded;
    bit<16> end;
}

const bit<16> BRIDGE_BYTES = 4;

// The eight words of a place.
header record_h {
    bit<32> standing;
    bit<32> src;
    bit<32> dst;
    bit<32> ports;
    bit<32> rest;
    bit<32> packets;
    bit<32> bytes;
    bit<32> sixteenths;
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
    bit<24> padding;
}

#define RESUBMITS 1
#define WORDS

#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/cfs/types.p4"
#include "include/collection.p4"
#include "include/cfs/request.p4"
#include "include/readable.p4"
#include "include/lanes.p4"
#include "include/cfs/flow_hash.p4"
#include "include/cfs/standing.p4"
#include "include/cfs/column.p4"
#include "include/cfs/notes.p4"
#include "include/cfs/rows.p4"
#include "include/marking.p4"
#include "include/forwarding.p4"

// The bit by which a packet is recorded. IPv6 packets carry it, too, in networks whose edges
// measure them; this program tells none of their flows apart.
control Carried(in headers_t hdr, out bit<1> ipv6, out bit<1> timestamp) {
    apply {
        ipv6 = 0;
        timestamp = hdr.ipv4.mark[2:2];
        if (hdr.ipv6.isValid()) {
            ipv6 = 1;
            timestamp = hdr.ipv6.traffic_class[7:7];
        }
    }
}

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
    Request() request_of;
    Rows() rows;
    Marking() marking;
    Counter<bit<64>, class_t>(8, CounterType_t.PACKETS) packets;
    request_t request;
    window_t window;
    entry_t moving;
    index_t row;
    index_t note;
    bit<32> standing;
    bit<8> ttl;
    bit<1> ipv6;
    bit<1> timestamp_there;
    bit<1> claimed;
    bit<1> goes_on;
    bit<1> is_second;
    bit<8> recorded;
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

    table timestamp {
        actions = { set_timestamp; }
        default_action = set_timestamp(0);
        size = 1;
    }

    action record_in(bit<1> group, word_t seed_high, word_t seed_low, bit<32> limit,
                     bit<1> claims) {
        window.is_open = true;
        window.group = group;
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

    action places() {
        row = (index_t)(window.group ++ meta.hashes.word0[15:16 - ROW_BITS]);
        note = window.group ++ meta.hashes.word2[14:0];
    }

    action of_packet() {
        moving = { meta.resubmitted.standing, hdr.ipv4.src, hdr.ipv4.dst, meta.ports,
                   hdr.ipv4.protocol ++ 8w1 ++ note, 1, 16w0 ++ hdr.ipv4.total_length,
                   20w0 ++ hdr.ipv4.total_length[15:4] };
    }

    // Once more through the ingress, whatever else was decided.
    action once_more() {
        ig_dprsr_md.resubmit_type = RESUBMITS;
        ig_dprsr_md.drop_ctl = 0;
        meta.resubmitted.setValid();
        meta.resubmitted.standing = standing;
        meta.resubmitted.second = 7w0 ++ is_second;
        meta.resubmitted.padding = 0;
    }

    apply {
        request = { false, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING,
                    NOTHING, NOTHING };
        window = { false, 0, 0, 0, 0, false };
        moving = { 0, 0, 0, 0, 0, 0, 0, 0 };
        recorded = 0;
        claimed = 0;
        again = ig_intr_md.resubmit_flag == 1;
        ttl = hdr.ipv4.ttl;
        host_ports.apply();
        timestamp.apply();
        readable.apply(hdr, meta, ig_prsr_md.parser_err, missing);
        before.apply(hdr, meta);
        collection.apply(hdr.collect, ig_intr_md.ingress_port, meta, request,
                         ig_dprsr_md, ig_tm_md);
        carried.apply(hdr, ipv6, timestamp_there);
        if (meta.from_host) {
            timestamp_there = meta.timestamp;
        }
        windows.apply();
        flow_hash.apply(hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol, window,
                        meta.hashes);
        if (!meta.from_host && window.claims) {
            claimed = hdr.ipv4.tos_rest[3:3];
        }
        standing_of.apply(meta.hashes, ttl, claimed, window, standing, goes_on);
        places();
        if (request.collects) {
            request_of.apply(hdr.collect, request);
            row = hdr.collect.next;
        } else {
            if (!again) {
                packets.count(meta.class);
            }
            if (window.is_open && (meta.measured || ipv6 == 1)) {
                request.events = RECORD;
                recorded = 1;
            }
            if (window.is_open && meta.measured) {
                of_packet();
                request.column0 = RECORD;
                if (again) {
                    request.column0 = SEEK;
                }
            }
        }
        forwarding.apply(hdr, meta.before, meta.changed, ig_intr_md.ingress_port,
                         meta.hashes.word0, request.collects, ig_dprsr_md, ig_tm_md);

        rows.apply(request, again, standing, ttl, meta.resubmitted.second[0:0], claimed, goes_on,
                   window, meta.hashes, row, note, hdr.collect.next, moving, hdr.record, hdr.word,
                   resubmits, is_second);
        if (resubmits) {
            once_more();
        }

        hdr.bridge = { UNMEASURED, recorded, 0 };
        if (request.collects) {
            hdr.bridge.kind = COLLECTING;
        } else if (meta.measured) {
            hdr.bridge.kind = MEASURED;
            hdr.bridge.end = meta.end;
        }
        if (meta.measured && meta.from_host) {
            marking.apply(hdr.ipv4.mark, meta.mark, meta.changed);
        }
        if (meta.measured && window.claims && hdr.ipv4.tos_rest[3:3] != goes_on) {
            hdr.ipv4.tos_rest[3:3] = goes_on;
            meta.changed = true;
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
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    mark_t given_back;
    bit<1> to_host;
    bit<16> missing;

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
        compare();
        if (meta.kind == COLLECTING || meta.kind == CONTINUED) {
            progress.apply(hdr.collect, meta.kind);
        } else if (missing != 0) {
            discard();
        } else if (hdr.bridge.recorded == 1) {
            packets.count(1);
        } else if (meta.kind == MEASURED || hdr.ipv6.isValid()) {
            packets.count(2);
        }
        if (meta.kind == MEASURED && to_host == 1) {
            marking.apply(hdr.ipv4.mark, given_back, meta.changed);
        }
        hdr.bridge.setInvalid();
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
