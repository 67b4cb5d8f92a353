// The hardware edge switch: ChameleMon's data plane (appendix D of the paper) for Tofino, equal
// bucket for bucket to the software edge.
//
// A packet from a host is counted and classified, encoded upstream and marked; a packet for a host
// is encoded downstream by its mark, and the mark is taken out. Each function is a control in a
// file of its own, those that any system's program needs in include/, ChameleMon's in
// include/chamelemon/; what both kinds of switch must agree on is docs/contract.md.
//
// Marks are in the ToS byte; with CARRIER_IP_ID defined they are in the IPv4 identification.

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "include/generated/hashes.p4"
#include "include/chamelemon/generated/contract.p4"
#include "include/sizes.p4"
#include "include/types.p4"
#include "include/chamelemon/types.p4"
#include "include/chamelemon/buckets.p4"
#define NOTICES
#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/collection.p4"
#include "include/chamelemon/request.p4"
#include "include/readable.p4"
#include "include/hashing.p4"
#include "include/chamelemon/flow_hash.p4"
#include "include/chamelemon/classifier.p4"
#include "include/chamelemon/index.p4"
#include "include/chamelemon/hierarchy.p4"
#include "include/marking.p4"
#ifdef CARRIER_IP_ID
#include "include/identification.p4"
#endif
#include "include/chamelemon/encoder.p4"
#include "include/notices.p4"
#include "include/chamelemon/strays.p4"
#include "include/forwarding.p4"

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Readable() readable;
    Remember() before;
    FlowHash() flow_hash;
    Classifier() classifier;
    Hierarchy() classify;
    Encoder(UPSTREAM_BUCKETS) upstream;
#ifdef CARRIER_IP_ID
    Signature() signature;
    Identify() identify;
#else
    Marking() marking;
#endif
    Request(2) request_of;
    CollectionPath() collection;
    Forwarding() forwarding;
    Counter<bit<64>, class_t>(8, CounterType_t.PACKETS) packets;
    // Packets that the classifier counts, by timestamp bit: its own counters come to their ends.
    Counter<bit<64>, bit<1>>(2, CounterType_t.PACKETS) entered;
    request_t request;
    words_t masked;
    bit<16> missing;
    bit<8> count8;
    bit<16> count16;

    action host() {
        meta.from_host = true;
        meta.class[1:1] = 1;
    }

    // Ports that lead to hosts: what comes from there enters the network here.
    table host_ports {
        key = { ig_intr_md.ingress_port : exact; }
        actions = { host; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    // The agent flips the bit at the start of each epoch by setting this default.
#ifdef CARRIER_IP_ID
    action set_timestamp(bit<1> value, bit<2> above) {
        meta.timestamp = value;
        meta.mark = value ++ 2w0;
        meta.epoch = above ++ value;
    }
#else
    action set_timestamp(bit<1> value) {
        meta.timestamp = value;
        meta.mark = value ++ 2w0;
    }
#endif

    table timestamp {
        actions = { set_timestamp; }
#ifdef CARRIER_IP_ID
        default_action = set_timestamp(0, 0);
#else
        default_action = set_timestamp(0);
#endif
        size = 1;
    }

    action end_at(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_tm_md.qid = 1;
        ig_dprsr_md.drop_ctl = 0;
    }

    // A packet from a host that has no way to go on is recorded before that is known. So that it is
    // no loss it goes to a port where it is recorded as having left, and then dropped: by a queue of
    // its own, as collection packets take that port too.
    table no_way {
        key = { ig_intr_md.ingress_port : exact; }
        actions = { end_at; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    apply {
        request = { false, hdr.collect.next, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING };
        masked = { 0, 0, 0 };
        ig_dprsr_md.drop_ctl = 0;
        host_ports.apply();
        timestamp.apply();
        readable.apply(hdr, meta, ig_prsr_md.parser_err, missing);
#ifdef CARRIER_IP_ID
        signature.apply(hdr.ipv4, meta);
#endif
        before.apply(hdr, meta);
        collection.apply(hdr.collect, ig_intr_md.ingress_port, meta, request,
                         ig_dprsr_md, ig_tm_md);
        flow_hash.apply(hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                        meta.timestamp, request, meta.hashes);
        if (request.collects) {
            request_of.apply(hdr.collect, request);
        } else if (meta.readable && ig_prsr_md.parser_err == PARSER_ERROR_OK && missing == 0
#ifdef CARRIER_IP_ID
                   && meta.datagram == WHOLE && meta.keyed
#endif
                   && meta.from_host) {
            // `meta.measured` says as much, a stage later.
            request.level0 = RECORD;
            request.level1 = RECORD;
        }
        if (!request.collects) {
            packets.count(meta.class);
        }
        forwarding.apply(hdr, meta.before, meta.changed, ig_intr_md.ingress_port,
                         meta.hashes.word0, request.collects, ig_dprsr_md, ig_tm_md);
        if (ig_dprsr_md.drop_ctl == 1 && meta.measured && meta.from_host) {
            no_way.apply();
        }

        classifier.apply(meta.hashes, request, count8, count16);
        if (meta.measured && meta.from_host) {
            entered.count(meta.timestamp);
            classify.apply(meta.timestamp, count8, count16, meta.hashes, meta.mark, masked,
                           request);
        }
        upstream.apply(meta.mark, masked, meta.hashes.check,
                       hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                       request, hdr.record);

        hdr.bridge = { UNMEASURED, meta.hashes.word0, meta.hashes.word1, meta.hashes.word2,
                       meta.hashes.check, 0 };
        if (request.collects) {
            hdr.bridge.kind = COLLECTING;
#ifdef CARRIER_IP_ID
        } else if (meta.fate != UNMEASURED) {
            hdr.bridge.kind = meta.fate;
            hdr.bridge.end = meta.end;
#else
        } else if (meta.measured) {
            hdr.bridge.kind = MEASURED;
            hdr.bridge.end = meta.end;
#endif
        }
        if (meta.measured && meta.from_host) {
#ifdef CARRIER_IP_ID
            identify.apply(hdr.ipv4, meta.epoch, meta.mark, meta.signature, meta.changed);
#else
            marking.apply(hdr.ipv4.mark, meta.mark, meta.changed);
#endif
        }
        if (request.collects && hdr.collect.access == READ && hdr.collect.source == 0) {
            hdr.counter = { 0, count8 };
        }
        if (request.collects && hdr.collect.access == READ && hdr.collect.source == 1) {
            hdr.counter = { count16[15:8], count16[7:0] };
        }
    }
}

control Egress(inout headers_t hdr, inout metadata_t meta,
               in egress_intrinsic_metadata_t eg_intr_md,
               in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
               inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
               inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Remember() before;
    Masks() masks;
    Encoder(DOWNSTREAM_BUCKETS) downstream;
#ifdef CARRIER_IP_ID
    Release() release;
#else
    Marking() marking;
#endif
    Strays() strays;
    Request(5) request_of;
    CollectionProgress() progress;
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    request_t request;
    words_t masked;
    mark_t carried;
    mark_t given_back;
    bit<8> said;
    bit<16> missing;
    bit<8> stream;
    bool is_stray;
    bool to_host;
    bool ends;

    // The upper half of the DSCP that packets leave the network with.
    action host(bit<3> dscp) {
        to_host = true;
        given_back = dscp;
    }

    // Here packets of hosts end that have no way to go on.
    action nowhere() {
        to_host = true;
        ends = true;
    }

    action end() {
        eg_dprsr_md.drop_ctl = 1;
    }

    // A condition can't compute. A Tofino may count the frame check sequence: as few as four bytes
    // can be missing unnoticed.
    action compare() {
        missing = meta.end |-| eg_intr_md.pkt_length;
    }

    // A packet that is shorter than it says: nobody takes it (RFC 1812, 5.2.2), and where it was
    // counted it is lost.
    action discard() {
        eg_dprsr_md.drop_ctl = 1;
        to_host = false;
    }

    table host_ports {
        key = { eg_intr_md.egress_port : exact; }
        actions = { host; nowhere; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    apply {
        request = { false, hdr.collect.next, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING };
        masked = { 0, 0, 0 };
#ifdef CARRIER_IP_ID
        carried = hdr.ipv4.identification[13:11];
        said = 3w0b100 ++ hdr.ipv4.identification[15:11];
#else
        carried = hdr.ipv4.mark;
        said = 5w0 ++ hdr.ipv4.mark;
#endif
        given_back = 0;
        stream = 0;
        is_stray = false;
        to_host = false;
        ends = false;
        before.apply(hdr, meta);
        host_ports.apply();
        compare();
        if (meta.kind == COLLECTING) {
            request.collects = true;
            request_of.apply(hdr.collect, request);
        } else if (missing != 0) {
            discard();
        } else if (meta.kind == MEASURED && to_host) {
            masks.apply(carried, hdr.bridge, masked, request);
        }

        downstream.apply(carried, masked, hdr.bridge.check,
                         hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                         request, hdr.record);

        if (meta.kind == COLLECTING || meta.kind == CONTINUED) {
            progress.apply(hdr.collect, meta.kind);
        } else if (meta.kind == MEASURED && to_host) {
            // Of hierarchy 0, recorded, or of a hierarchy that has no buckets in this epoch.
            if (carried[1:0] == 0) {
                packets.count(0);
            } else if (request.array0 == RECORD) {
                packets.count(1);
            } else {
                packets.count(2);
                is_stray = true;
                stream = 7w0 ++ carried[2:2];
            }
#ifdef CARRIER_IP_ID
        } else if (meta.kind == LATE && to_host && carried[1:0] != 0) {
            packets.count(2);
            is_stray = true;
            stream = 7w0 ++ carried[2:2];
        } else if (meta.kind == UNMARKED && to_host) {
            packets.count(3);
            is_stray = true;
            stream = UNMARKED_STREAM;
        } else if ((meta.kind == LATE || meta.kind == UNKEYED) && to_host) {
            packets.count(0);
        }
        if (to_host && (meta.kind == MEASURED || meta.kind == LATE || meta.kind == UNKEYED)) {
            release.apply(hdr.ipv4, meta.changed);
        }
#else
            marking.apply(hdr.ipv4.mark, given_back, meta.changed);
        }
#endif
        // A notice of it is mirrored all the same.
        if (ends && meta.kind == MEASURED) {
            end();
        }
        if (is_stray) {
            strays.apply(hdr, stream, said, meta, eg_dprsr_md);
        } else if (meta.kind == NOTICE) {
            hdr.ethernet.type = TYPE_COLLECT;
        }
        hdr.bridge.setInvalid();
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
