// The hardware edge switch: ChameleMon's data plane (appendix D of the paper) for Tofino, equal
// bucket for bucket to the software edge.
//
// A packet from a host is counted and classified, encoded upstream and marked; a packet for a host
// is encoded downstream by its mark, and the mark is taken out. Each function is a control in a
// file of its own; what both kinds of switch must agree on is docs/contract.md.

#include <core.p4>
#include <tna.p4>

#include "include/generated/contract.p4"
#include "include/sizes.p4"
#include "include/types.p4"
#include "include/buckets.p4"
#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/readable.p4"
#include "include/hashing.p4"
#include "include/collection.p4"
#include "include/classifier.p4"
#include "include/hierarchy.p4"
#include "include/index.p4"
#include "include/encoder.p4"
#include "include/forwarding.p4"

control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Readable() readable;
    FlowHash() flow_hash;
    Classifier() classifier;
    Hierarchy() classify;
    Encoder(UPSTREAM_BUCKETS) upstream;
    Request(2) request_of;
    CollectionPath() collection;
    Forwarding() forwarding;
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    request_t request;
    bit<16> size;
    bool accepted;
    bool encoded;

    action host() {
        meta.from_host = true;
    }

    // Ports that lead to hosts: what comes from there enters the network here.
    table host_ports {
        key = { ig_intr_md.ingress_port : exact; }
        actions = { host; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    // The agent flips the bit at the start of each epoch by setting this default.
    action set_timestamp(bit<1> value) {
        meta.timestamp = value;
    }

    table timestamp {
        actions = { set_timestamp; }
        default_action = set_timestamp(0);
        size = 1;
    }

    apply {
        host_ports.apply();
        timestamp.apply();
        readable.apply(hdr, meta, ig_prsr_md.parser_err);
        request = { false, 0, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING };
        if (hdr.collect.isValid()) {
            collection.apply(hdr.collect, ig_intr_md.ingress_port, meta, ig_dprsr_md, ig_tm_md,
                             accepted);
            if (accepted) {
                request_of.apply(hdr.collect, request);
            }
        } else if (meta.measured) {
            flow_hash.apply(hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol, meta.hashes);
            if (meta.from_host) {
                request.level0 = RECORD;
                request.level1 = RECORD;
            }
        }

        classifier.apply(meta.timestamp, meta.hashes, request, size);
        if (meta.measured && meta.from_host) {
            classify.apply(meta.timestamp, size, meta.hashes.sample, meta.hierarchy);
        }
        upstream.apply(meta.timestamp, meta.hierarchy,
                       meta.hashes.word0, meta.hashes.word1, meta.hashes.word2,
                       meta.hashes.fingerprint,
                       hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                       request, hdr.record, encoded);

        if (hdr.collect.isValid()) {
            if (hdr.collect.access == READ && hdr.collect.source < 2) {
                hdr.counter = { size };
            }
        } else {
            if (meta.measured && meta.from_host
                && hdr.ipv4.mark != meta.timestamp ++ meta.hierarchy) {
                hdr.ipv4.mark = meta.timestamp ++ meta.hierarchy;
                meta.changed = true;
            }
            packets.count((bit<1>)meta.from_host ++ (bit<1>)meta.measured);
            forwarding.apply(hdr, meta, ig_intr_md.ingress_port, meta.hashes.fingerprint[19:12],
                             ig_dprsr_md, ig_tm_md);
        }
        hdr.bridge = {
            7w0 ++ (bit<1>)meta.measured,
            meta.hashes.word0, meta.hashes.word1, meta.hashes.word2,
            12w0, meta.hashes.fingerprint };
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    Deparsing() deparsing;
    Mirror() mirror;

    apply {
        if (ig_dprsr_md.mirror_type == CONTINUE_MIRROR) {
            mirror.emit<continued_h>(meta.session, { CONTINUED });
        }
        deparsing.apply(pkt, hdr, meta);
    }
}

control Egress(inout headers_t hdr, inout metadata_t meta,
               in egress_intrinsic_metadata_t eg_intr_md,
               in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
               inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
               inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    Encoder(DOWNSTREAM_BUCKETS) downstream;
    Request(5) request_of;
    CollectionProgress() progress;
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    request_t request;
    bit<3> given_back;
    bool to_host;
    bool encoded;

    // The upper half of the DSCP that packets leave the network with.
    action host(bit<3> dscp) {
        to_host = true;
        given_back = dscp;
    }

    table host_ports {
        key = { eg_intr_md.egress_port : exact; }
        actions = { host; NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    apply {
        to_host = false;
        host_ports.apply();
        meta.measured = meta.kind == MEASURED;
        request = { false, 0, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING };
        if (hdr.collect.isValid() && meta.kind != CONTINUED) {
            request_of.apply(hdr.collect, request);
        } else if (meta.measured && to_host) {
            meta.timestamp = hdr.ipv4.mark[2:2];
            meta.hierarchy = hdr.ipv4.mark[1:0];
        }

        downstream.apply(meta.timestamp, meta.hierarchy,
                         hdr.bridge.word0, hdr.bridge.word1, hdr.bridge.word2,
                         hdr.bridge.fingerprint,
                         hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                         request, hdr.record, encoded);

        if (hdr.collect.isValid()) {
            progress.apply(hdr.collect, meta.kind);
        } else if (meta.measured && to_host) {
            if (hdr.ipv4.mark != given_back) {
                hdr.ipv4.mark = given_back;
                meta.changed = true;
            }
            // Of hierarchy 0, recorded, or of a hierarchy that has no buckets in this epoch.
            if (meta.hierarchy == 0) {
                packets.count(0);
            } else if (encoded) {
                packets.count(1);
            } else {
                packets.count(2);
            }
        }
        hdr.bridge.setInvalid();
    }
}

control EgressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Deparsing() deparsing;

    apply {
        deparsing.apply(pkt, hdr, meta);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
