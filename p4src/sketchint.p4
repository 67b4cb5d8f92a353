// SketchINT: each packet that carries a stack of INT through the network leaves with one more hop
// on it, and each that enters with a stack of its own, unless ROLE_TRANSIT is defined. docs/p4.md
// has what it does with those that it can not add to.
//
// The ingress forwards, and notes when a packet came and with which DSCP. The egress knows where it
// leaves, how long it may be there, and how long it was in the switch. There, packets for hosts are
// counted by flow, and with their latencies by flow and switch, in the window of the timestamp bit
// that they came with.

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "include/generated/hashes.p4"
#include "include/sizes.p4"
#include "include/types.p4"
#include "include/int/bridge.p4"

struct request_t {
    bool collects;
}

#define TELEMETRY

#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/collection.p4"
#include "include/readable.p4"
#include "include/hashing.p4"
#include "include/marking.p4"
#include "include/int/lengths.p4"
#ifndef ROLE_TRANSIT
#include "include/int/totals.p4"
#include "include/int/source.p4"
#include "include/int/sink.p4"
#include "include/lanes.p4"
#include "include/int/flow_hash.p4"
#include "include/int/generated/sizes.p4"
#include "include/int/tower.p4"
#ifdef ACU
#include "include/int/tower_acu.p4"
#else
#include "include/int/tower_cm.p4"
#endif
#include "include/int/logarithm.p4"
#include "include/int/pairs.p4"
#include "include/int/inflated.p4"
#include "include/int/large.p4"
#endif
#include "include/int/push.p4"
#include "include/forwarding.p4"

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Readable() readable;
    Remember() before;
#ifdef ROLE_TRANSIT
    FlowWord() flow_hash;
#else
    TowerHash() flow_hash;
#endif
    CollectionPath() collection;
    Forwarding() forwarding;
    Counter<bit<64>, class_t>(8, CounterType_t.PACKETS) packets;
    request_t request;
    bit<16> missing;
    bit<6> dscp;
    bit<1> from_host;
    bit<1> strips;
#ifndef ROLE_TRANSIT
    Sink() sink;
    Marking() marking;
    bit<1> timestamp_there;
    bit<1> known6;
    bit<16> short6;
    Counter<bit<64>, bit<1>>(2, CounterType_t.PACKETS) markers;
    bool clears;
    bool marks;
    bool marks6;

    action clear() {
        clears = true;
    }

    // Whether the marker is the network's, so that hosts' packets must not have it.
    table clearing {
        actions = { clear; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    action mark() {
        marks = true;
    }

    action mark_both() {
        marks = true;
        marks6 = true;
    }

    // Whether packets from hosts get a mark: the timestamp bit, and no hierarchy; those of IPv4, or
    // of IPv6 as well.
    table sources {
        actions = { mark; mark_both; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    action clear4() {
        hdr.ipv4.tos_rest[4:4] = 0;
        meta.changed = true;
    }

    action clear6() {
        hdr.ipv6.traffic_class[4:4] = 0;
    }

    action mark6() {
        hdr.ipv6.traffic_class[7:5] = meta.mark;
    }

    // By how much the payload ends within the ports.
    action compare6() {
        short6 = 4 |-| hdr.ipv6.payload_length;
    }
#endif

    action host() {
        meta.from_host = true;
        from_host = 1;
        meta.class[1:1] = 1;
    }

    action dscp4() {
        dscp = hdr.ipv4.mark ++ hdr.ipv4.tos_rest[4:2];
    }

    action dscp6() {
        dscp = hdr.ipv6.traffic_class[7:2];
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

    // Of packets from hosts.
    table timestamp {
        actions = { set_timestamp; }
        default_action = set_timestamp(0);
        size = 1;
    }

    apply {
        request = { false };
        dscp = 0;
        from_host = 0;
        strips = 0;
        host_ports.apply();
        timestamp.apply();
        readable.apply(hdr, meta, ig_prsr_md.parser_err, missing);
        before.apply(hdr, meta);
        meta.telemetry = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        if (hdr.ipv4.isValid()) {
            dscp4();
        } else if (hdr.ipv6.isValid()) {
            dscp6();
        }
#ifndef ROLE_TRANSIT
        clears = false;
        marks = false;
        marks6 = false;
        clearing.apply();
        sources.apply();
        if (clears && meta.from_host && dscp[2:2] == 1) {
            if (hdr.ipv4.isValid()) {
                clear4();
            } else {
                clear6();
            }
            markers.count(0);
        }
#endif
        collection.apply(hdr.collect, ig_intr_md.ingress_port, meta, request, ig_dprsr_md,
                         ig_tm_md);
#ifdef ROLE_TRANSIT
        flow_hash.apply(hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                        meta.hashes.word0);
#else
        flow_hash.apply(hdr, meta.ports, meta.hashes);
        timestamp_there = hdr.ipv4.mark[2:2];
        if (meta.from_host) {
            timestamp_there = meta.timestamp;
        } else if (hdr.ipv6.isValid()) {
            timestamp_there = hdr.ipv6.traffic_class[7:7];
        }
        short6 = 0;
        if (hdr.ports.isValid()) {
            compare6();
        }
        known6 = 0;
        if (meta.readable6 && hdr.ipv6.version == 6 && ig_prsr_md.parser_err == PARSER_ERROR_OK
            && short6 == 0) {
            known6 = 1;
        }
#endif
        if (!request.collects) {
            packets.count(meta.class);
        }
        forwarding.apply(hdr, meta.before, meta.changed, ig_intr_md.ingress_port,
                         meta.hashes.word0, request.collects, ig_dprsr_md, ig_tm_md);
#ifndef ROLE_TRANSIT
        sink.apply(hdr, meta.from_host, ig_tm_md.ucast_egress_port, ig_prsr_md.parser_err, strips,
                   ig_dprsr_md.drop_ctl);
#endif
#ifdef ROLE_TRANSIT
        hdr.bridge = { UNMEASURED, ig_intr_md.ingress_mac_tstamp, dscp, from_host, strips, 0 };
#else
        hdr.bridge = { UNMEASURED, ig_intr_md.ingress_mac_tstamp, dscp, from_host, strips,
                       meta.hashes.counter8, meta.hashes.counter16, meta.hashes.counter32,
                       meta.hashes.pairs.first, meta.hashes.pairs.second, meta.hashes.pairs.third,
                       timestamp_there, known6, 0, 0 };
#endif
#ifndef ROLE_TRANSIT
        if (marks && meta.measured && meta.from_host) {
            marking.apply(hdr.ipv4.mark, meta.mark, meta.changed);
        } else if (marks6 && hdr.ipv6.isValid() && meta.from_host) {
            mark6();
        }
#endif
        if (request.collects) {
            hdr.bridge.kind = COLLECTING;
        } else if (meta.measured) {
            hdr.bridge.kind = MEASURED;
            hdr.bridge.end = meta.end;
        } else if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
            hdr.bridge.end = meta.end;
        }
    }
}

control Egress(inout headers_t hdr, inout metadata_t meta,
               in egress_intrinsic_metadata_t eg_intr_md,
               in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
               inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
               inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Remember() before;
    CollectionProgress() progress;
    Push() push;
#ifndef ROLE_TRANSIT
    Strip() strip;
    Marking() marking;
    mark_t given_back;
    bool takes_back;
    bool takes_back6;
    TowerRequest() request_of;
    Tower() sizes;
    towers_t request;
    word_t word8;
    word_t word16;
    word_t word32;
    PlacesRequest() places_of;
    Meet() meet;
    Places() places;
    places_t at;
    met_t met;
    pair_words_t pairs;
    Large() large;
    LargeRequest() large_of;
    large_t keeps;
    Totals() totals;
    InflationNotices() notices;
    Inflations() inflations;
    TotalsRequest() totals_of;
    totals_t adds;
    sizes_t counted;
    bit<6> inflated;
    bit<32> number;
    bit<32> end;
    bit<32> over;
    bit<8> stream;
    bit<8> stack_words;
    bit<8> turn;
    bool is_known;
    bool records;
    bool is_open;
    // 0 stacks that were taken out, 2 those of more hops than there are places, 1 packets dropped
    // as they end before they should.
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) stripped;
#endif
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    bit<16> missing;
    bool to_host;
    bool enters;
    bool passes;
    bool whole;
    bit<32> latency;

    action host(bit<3> dscp) {
        to_host = true;
#ifndef ROLE_TRANSIT
        given_back = dscp;
#endif
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
    }

#ifndef ROLE_TRANSIT
    action record_in(bit<1> group, bit<8> of_turn) {
        is_open = true;
        turn = of_turn;
        request.group = group;
        at.group = group;
        keeps.group = group;
        adds.group = group;
    }

    action take_back() {
        takes_back = true;
    }

    action take_back_both() {
        takes_back = true;
        takes_back6 = true;
    }

    action give_back6() {
        hdr.ipv6.traffic_class[7:5] = given_back;
    }

    // Whether packets for hosts have a mark, which is taken out: those of IPv4, or of IPv6 as well.
    table sinks {
        actions = { take_back; take_back_both; NoAction; }
        default_action = NoAction;
        size = 1;
    }

    // The windows that packets are recorded in.
    table windows {
        key = { hdr.bridge.timestamp : exact; }
        actions = { record_in; NoAction; }
        const default_action = NoAction;
        size = 2;
    }

    action of_packet() {
        word8 = hdr.bridge.counter8;
        word16 = hdr.bridge.counter16;
        word32 = hdr.bridge.counter32;
        pairs = { hdr.bridge.pair0, hdr.bridge.pair1, hdr.bridge.pair2 };
    }

    action of_collection() {
        word8 = hdr.collect.next;
        word16 = hdr.collect.next;
        word32 = hdr.collect.next;
        pairs = { hdr.collect.next, hdr.collect.next, hdr.collect.next };
    }

    action over_budget() {
        over = hdr.notice.number |-| end;
    }

    // Behind the notice is what the packet has behind its Ethernet header.
    action readdress() {
        hdr.notice.type = hdr.ethernet.type;
        hdr.ethernet.type = TYPE_COLLECT;
    }

    action notice() {
        eg_dprsr_md.mirror_type = NOTICE_MIRROR;
        meta.notice.setValid();
        meta.notice.kind = NOTICE;
        meta.notice.stream = adds.group ++ adds.event[6:0];
        meta.notice.number = number;
        meta.notice.turn = turn;
        meta.notice.places = 2w0 ++ inflated;
    }

    action path() {
        meta.notice.places = 1w1 ++ stack_words[6:0];
        meta.notice.first_node = met.node0;
        meta.notice.first_latency = met.node1;
        meta.notice.last_node = met.node2;
        meta.notice.last_latency = met.node3;
        meta.notice.fifth = met.node4;
    }

    action says_of_stack() {
        stack_words = hdr.shim.length;
        adds.event = WITH_STACK | 6w0 ++ hdr.telemetry.exceeded ++ hdr.telemetry.too_long;
    }

    action number_as(bit<32> number) {
        met.own = number;
        at.own = RECORD;
    }

    // The switch's number, once it has one.
    table own {
        actions = { number_as; NoAction; }
        default_action = NoAction;
        size = 1;
    }
#endif

    apply {
#ifndef ROLE_TRANSIT
        request = { NOTHING, NOTHING, NOTHING, 0 };
        at = { NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, 3, 0 };
        met = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        keeps = { NOTHING, NOTHING, NOTHING, 0 };
        adds = { NOTHING, 0, 0 };
        given_back = 0;
        takes_back = false;
        takes_back6 = false;
        sinks.apply();
        is_open = false;
        records = false;
        stream = 0;
        stack_words = 0;
        turn = 0;
        over = 0;
        if (meta.kind == COLLECTING) {
            request_of.apply(hdr.collect, request);
            places_of.apply(hdr.collect, at);
            large_of.apply(hdr.collect, keeps);
            totals_of.apply(hdr.collect, adds);
            of_collection();
        } else if (meta.kind == NOTICE) {
            stream = 7w0 ++ hdr.notice.stream[7:7];
        } else if (meta.kind != CONTINUED) {
            windows.apply();
            of_packet();
            stream = 7w0 ++ adds.group;
        }
        notices.apply(stream, end, meta.session);
#endif
        to_host = false;
        enters = false;
        passes = false;
        whole = false;
        before.apply(hdr, meta);
        host_ports.apply();
        compare();
        if (meta.kind == COLLECTING || meta.kind == CONTINUED) {
            progress.apply(hdr.collect, meta.kind);
#ifndef ROLE_TRANSIT
        } else if (meta.kind == NOTICE) {
            readdress();
            over_budget();
            if (over != 0) {
                discard();
            }
        } else if (meta.strips == 1 && (missing != 0
                                        || eg_prsr_md.parser_err != PARSER_ERROR_OK)) {
            discard();
            stripped.count(1);
#endif
        } else if (missing != 0 && meta.kind == MEASURED) {
            discard();
        } else {
            // Of packets that are neither, nobody asks.
            if (hdr.bridge.from_host == 0) {
                passes = !to_host;
            } else if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
                enters = !to_host && !hdr.shim.isValid();
            }
            if (missing == 0 && eg_prsr_md.parser_err == PARSER_ERROR_OK
                && !(hdr.ipv4.isValid() && hdr.ipv4.flags[0:0] == 1)) {
                whole = hdr.tcp.isValid() || hdr.udp.isValid();
            }
            push.apply(hdr, meta, eg_intr_md.egress_port, eg_prsr_md.global_tstamp, enters, passes,
                       whole,
#ifndef ROLE_TRANSIT
                       adds.event,
#endif
                       latency);
#ifdef ROLE_TRANSIT
            if (to_host) {
                packets.count(0);
            }
#else
            is_known = false;
            if (meta.kind == MEASURED) {
                is_known = true;
            } else if (hdr.bridge.known6 == 1 && missing == 0) {
                is_known = true;
            }
            // Of packets for hosts: 1 recorded, 2 of a window that is not open, 0 of no flow that
            // the switch can tell. Of packets that enter: 2 likewise.
            if (enters && !is_open) {
                packets.count(2);
            } else if (enters) {
                adds.access = RECORD;
            } else if (to_host && !is_known) {
                packets.count(0);
                if (is_open && hdr.ipv6.isValid()) {
                    adds.access = RECORD;
                    adds.event = UNCLASSIFIED;
                }
            } else if (to_host && !is_open) {
                packets.count(2);
            } else if (to_host) {
                packets.count(1);
                request.of_8 = RECORD;
                request.of_16 = RECORD;
                request.of_32 = RECORD;
                records = true;
                met.latency = latency;
                own.apply();
                adds.access = RECORD;
                adds.event = PLAIN;
                if (hdr.bridge.from_host == 1) {
                    adds.event = LOCAL;
                } else if (meta.strips == 1) {
                    meet.apply(hdr, met, at);
                    says_of_stack();
                    if (hdr.taken[10].isValid()) {
                        adds.event = adds.event | BEYOND;
                    }
                }
            }
            if (meta.strips == 1) {
                if (hdr.taken[10].isValid()) {
                    stripped.count(2);
                } else {
                    stripped.count(0);
                }
                strip.apply(hdr, meta);
            } else if (takes_back && to_host && meta.kind == MEASURED) {
                // What had a stack has all of its host's DSCP back.
                marking.apply(hdr.ipv4.mark, given_back, meta.changed);
            } else if (takes_back6 && to_host && hdr.ipv6.isValid()) {
                give_back6();
            }
#endif
        }
#ifndef ROLE_TRANSIT
        sizes.apply(request, word8, word16, word32, counted, hdr.record);
        places.apply(at, pairs, met, inflated, hdr.record);
        large.apply(hdr, meta.ports, counted, pairs, word16, records, keeps, adds.event,
                    hdr.record);
        if (inflated != 0) {
            adds.event = adds.event | INFLATED;
        }
        totals.apply(adds, number, hdr.record);
        if (inflated != 0 && end != 0) {
            notice();
            inflations.apply(inflated, met, meta.notice);
        } else if (adds.event[4:3] == 3 && end != 0) {
            notice();
            path();
        }
#endif
        hdr.bridge.setInvalid();
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
