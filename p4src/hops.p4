// How many packets pass, exactly: the example of a system. `calumma-switchd` drives it as it drives
// ChameleMon; its tests do, and no release does.
//
// A flow's packets are counted in the cell that the low bits of its keyed hash name. An edge counts
// what enters and what leaves the network, a transit switch what passes, each packet in the group
// of the timestamp bit that it carries.

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "include/generated/hashes.p4"
#include "include/sizes.p4"
#include "include/types.p4"

const bit<32> CELLS = 256;

header bridge_h {
    bit<8> kind;
    word_t word0;
    bit<16> end;
}

const bit<16> BRIDGE_BYTES = 5;

header record_h {
    bit<32> packets;
}

struct hashes_t {
    word_t word0;
}

struct request_t {
    bool collects;
    access_t cells;
}

#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/collection.p4"
#include "include/readable.p4"
#include "include/hashing.p4"
#include "include/marking.p4"
#include "include/forwarding.p4"

// Counts a packet, or gives a collection packet a cell.
control Cells(in access_t access, in index_t index, inout record_h record) {
    Register<bit<32>, index_t>(2 * CELLS, 0) packets;
    RegisterAction<bit<32>, index_t, bit<32>>(packets) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
            if (access == RECORD) {
                value = value + 1;
            } else if (access == CLEAR) {
                value = 0;
            }
            rv = value;
        }
    };

    apply {
        if (access != NOTHING) {
            record.packets = touch.execute(index);
        }
        if (access == READ) {
            record.setValid();
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
    FlowWord() flow_hash;
    Marking() marking;
    CollectionPath() collection;
    Forwarding() forwarding;
    Cells() cells;
    Counter<bit<64>, class_t>(8, CounterType_t.PACKETS) packets;
    request_t request;
    index_t index;
    bit<16> missing;

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

    apply {
        request = { false, NOTHING };
        host_ports.apply();
        timestamp.apply();
        readable.apply(hdr, meta, ig_prsr_md.parser_err, missing);
        before.apply(hdr, meta);
        collection.apply(hdr.collect, ig_intr_md.ingress_port, meta, request,
                         ig_dprsr_md, ig_tm_md);
        flow_hash.apply(hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                        meta.hashes.word0);
        index = hdr.collect.next;
        if (!request.collects) {
            packets.count(meta.class);
            if (meta.measured && meta.from_host) {
                request.cells = RECORD;
                index = 7w0 ++ meta.timestamp ++ meta.hashes.word0[7:0];
            }
        } else if (hdr.collect.source == 0) {
            request.cells = hdr.collect.access;
        }
        forwarding.apply(hdr, meta.before, meta.changed, ig_intr_md.ingress_port,
                         meta.hashes.word0, request.collects, ig_dprsr_md, ig_tm_md);
        cells.apply(request.cells, index, hdr.record);
        hdr.bridge = { UNMEASURED, meta.hashes.word0, 0 };
        if (request.collects) {
            hdr.bridge.kind = COLLECTING;
        } else if (meta.measured) {
            hdr.bridge.kind = MEASURED;
            hdr.bridge.end = meta.end;
        }
        if (meta.measured && meta.from_host) {
            marking.apply(hdr.ipv4.mark, meta.mark, meta.changed);
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
    Cells() cells;
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    request_t request;
    index_t index;
    mark_t given_back;
    bit<1> timestamp;
    bit<1> to_host;
    bit<16> missing;
    bool counts_here;

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

    action count_here() {
        counts_here = true;
    }

    // Which packets this switch counts as they leave: those for hosts, or those for the network.
    table leaving {
        key = { to_host : exact; }
        actions = { count_here; NoAction; }
        const default_action = NoAction;
        size = 2;
    }

    action record_one() {
        request.cells = RECORD;
        index = 7w0 ++ timestamp ++ hdr.bridge.word0[7:0];
    }

    // The groups that packets are recorded in.
    table open {
        key = { timestamp : exact; }
        actions = { record_one; NoAction; }
        const default_action = NoAction;
        size = 2;
    }

    action compare() {
        missing = meta.end |-| eg_intr_md.pkt_length;
    }

    action discard() {
        eg_dprsr_md.drop_ctl = 1;
        counts_here = false;
        to_host = 0;
    }

    apply {
        request = { false, NOTHING };
        index = hdr.collect.next;
        timestamp = hdr.ipv4.mark[2:2];
        given_back = 0;
        to_host = 0;
        counts_here = false;
        before.apply(hdr, meta);
        host_ports.apply();
        leaving.apply();
        compare();
        if (meta.kind == COLLECTING) {
            if (hdr.collect.source == 1) {
                request.cells = hdr.collect.access;
            }
        } else if (missing != 0) {
            discard();
        } else if (meta.kind == MEASURED && counts_here) {
            open.apply();
        }

        cells.apply(request.cells, index, hdr.record);

        if (meta.kind == COLLECTING || meta.kind == CONTINUED) {
            progress.apply(hdr.collect, meta.kind);
        } else if (meta.kind == MEASURED && counts_here) {
            if (request.cells == RECORD) {
                packets.count(1);
            } else {
                packets.count(2);
            }
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
