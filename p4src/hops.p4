// How many packets of each flow pass, exactly: the example of a system. `calumma-switchd` drives it
// as it drives ChameleMon; tests run it, and no release does.
//
// A flow takes a cell of one of two ways, and its packets are counted there. Those of a flow that
// finds a cell in neither are counted together. An edge counts what enters as it is received and
// what leaves the network as it is sent, a transit switch what passes as it is received and as it
// is sent, each packet in the group of the timestamp bit that it carries.

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "include/generated/hashes.p4"
#include "include/sizes.p4"
#include "include/types.p4"

// Cells of a way in one group, and how a cell of a group is made of a hash.
const bit<32> CELLS = 2048;
#define CELL(timestamp, hash) 4w0 ++ timestamp ++ hash[10:0]

// With the protocol in its low byte, a cell that belongs to a flow.
const bit<32> TAKEN = 0x100;

// Takes a free cell.
const access_t CLAIM = 8;

header bridge_h {
    bit<8> kind;
    word_t word0;
    word_t word1;
    bit<16> end;
}

const bit<16> BRIDGE_BYTES = 7;

// A cell of a way, and what is counted without a cell in the same place.
header record_h {
    bit<32> owner;
    bit<32> src;
    bit<32> dst;
    bit<32> ports;
    bit<32> packets;
    bit<32> others;
}

struct hashes_t {
    word_t word0;
    word_t word1;
}

struct request_t {
    bool collects;
    access_t way0;
    access_t way1;
    access_t others;
}

#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/collection.p4"
#include "include/readable.p4"
#include "include/hashing.p4"
#include "include/marking.p4"
#include "include/forwarding.p4"

// A flow, or a cell of it. A collection packet has no owner, so that it claims nothing.
struct cell_t {
    bit<32> owner;
    bit<32> src;
    bit<32> dst;
    bit<32> ports;
    bit<32> packets;
}

// A word of the flows that cells belong to.
control FlowWords(in access_t access, in index_t index, in bit<32> own, inout bit<32> word) {
    Register<bit<32>, index_t>(2 * CELLS, 0) words;
    RegisterAction<bit<32>, index_t, bit<32>>(words) touch = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            if (access == CLAIM) {
                value = own;
            } else if (access == CLEAR) {
                value = 0;
            }
        }
    };

    apply {
        if (access != NOTHING) {
            word = touch.execute(index);
        }
    }
}

// Packets counted.
control Packets(in access_t access, in index_t index, inout bit<32> packets) {
    Register<bit<32>, index_t>(2 * CELLS, 0) counts;
    RegisterAction<bit<32>, index_t, bit<32>>(counts) touch = {
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
            packets = touch.execute(index);
        }
    }
}

// Counts a packet in a cell, which is its flow's or free, or gives a collection packet a cell.
control Way(in access_t access, in index_t index, in cell_t flow, inout cell_t cell,
            out bool found) {
    Register<bit<32>, index_t>(2 * CELLS, 0) owners;
    RegisterAction<bit<32>, index_t, bit<32>>(owners) claim = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            if (value == 0) {
                value = flow.owner;
            }
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(owners) clear = {
        void apply(inout bit<32> value) {
            value = 0;
        }
    };
    FlowWords() src;
    FlowWords() dst;
    FlowWords() ports;
    Packets() packets;
    access_t words;
    access_t counts;
    bit<32> other_owner;
    bit<32> other_src;
    bit<32> other_dst;
    bit<32> other_ports;

    // In an action of its own: a condition can't compute.
    action compare() {
        other_owner = cell.owner ^ flow.owner;
        other_src = cell.src ^ flow.src;
        other_dst = cell.dst ^ flow.dst;
        other_ports = cell.ports ^ flow.ports;
    }

    action is_its_own() {
        found = true;
    }

    // A condition has no room for four words.
    table same {
        key = {
            other_owner : exact;
            other_src : exact;
            other_dst : exact;
            other_ports : exact;
        }
        actions = { is_its_own; NoAction; }
        const default_action = NoAction;
        const entries = { (0, 0, 0, 0) : is_its_own(); }
        size = 1;
    }

    apply {
        found = false;
        words = access;
        counts = access;
        if (access == CLEAR) {
            clear.execute(index);
        } else if (access != NOTHING) {
            cell.owner = claim.execute(index);
        }
        if (access == RECORD && cell.owner == 0) {
            words = CLAIM;
            found = true;
        }
        src.apply(words, index, flow.src, cell.src);
        dst.apply(words, index, flow.dst, cell.dst);
        ports.apply(words, index, flow.ports, cell.ports);
        compare();
        if (access == RECORD && !found) {
            same.apply();
        }
        if (access == RECORD && !found) {
            counts = NOTHING;
        }
        packets.apply(counts, index, cell.packets);
    }
}

// Counts a packet with its flow, or with those of all flows that have no cell, or gives a
// collection packet a cell.
control Cells(in request_t request, in cell_t flow, in index_t index0, in index_t index1,
              inout record_h record) {
    Way() way0;
    Way() way1;
    Packets() others;
    cell_t cell;
    bool found0;
    bool found1;
    access_t second;
    access_t rest;
    bit<32> without;

    apply {
        cell = { 0, 0, 0, 0, 0 };
        without = 0;
        second = request.way1;
        rest = request.others;
        way0.apply(request.way0, index0, flow, cell, found0);
        if (request.way0 == RECORD && !found0) {
            second = RECORD;
        }
        way1.apply(second, index1, flow, cell, found1);
        if (second == RECORD && !found1) {
            rest = RECORD;
        }
        others.apply(rest, index1, without);
        if (request.others == READ) {
            record = { cell.owner, cell.src, cell.dst, cell.ports, cell.packets, without };
        }
    }
}

// What a packet asks of the cells of its gress, whose first source has that number.
control Request(in collect_h collect, inout request_t request)(bit<8> first) {
    apply {
        if (collect.source == first) {
            request.way0 = collect.access;
            request.others = collect.access;
        } else if (collect.source == first + 1) {
            request.way1 = collect.access;
            request.others = collect.access;
        }
    }
}

// The bit by which a packet is counted where it passes or leaves. IPv6 packets carry it, too, in
// networks whose edges measure them; this program tells none of their flows apart.
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
    FlowWord() flow_hash;
    Marking() marking;
    CollectionPath() collection;
    Forwarding() forwarding;
    Carried() carried;
    Request(0) request_of;
    Cells() cells;
    Hash<word_t>(HashAlgorithm_t.CRC16) crc;
    Counter<bit<64>, class_t>(8, CounterType_t.PACKETS) packets;
    request_t request;
    cell_t flow;
    index_t index0;
    index_t index1;
    bit<1> ipv6;
    bit<1> timestamp_there;
    bool passes;
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

    action count_passing() {
        passes = true;
    }

    // The groups that packets of other switches are recorded in as they are received: at a transit
    // switch those that are open, at an edge none.
    table passing {
        key = { ipv6 : exact; timestamp_there : exact; }
        actions = { count_passing; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    apply {
        request = { false, NOTHING, NOTHING, NOTHING };
        passes = false;
        host_ports.apply();
        timestamp.apply();
        readable.apply(hdr, meta, ig_prsr_md.parser_err, missing);
        before.apply(hdr, meta);
        collection.apply(hdr.collect, ig_intr_md.ingress_port, meta, request,
                         ig_dprsr_md, ig_tm_md);
        flow_hash.apply(hdr.ipv4.src, hdr.ipv4.dst, meta.ports, hdr.ipv4.protocol,
                        meta.hashes.word0);
        meta.hashes.word1 = crc.get({ hdr.ipv4.src, hdr.ipv4.dst, meta.ports,
                                      hdr.ipv4.protocol });
        carried.apply(hdr, ipv6, timestamp_there);
        flow = { 0, hdr.ipv4.src, hdr.ipv4.dst, meta.ports, 0 };
        index0 = hdr.collect.next;
        index1 = hdr.collect.next;
        if (request.collects) {
            request_of.apply(hdr.collect, request);
        } else {
            packets.count(meta.class);
            passing.apply();
            if (meta.from_host) {
                timestamp_there = meta.timestamp;
            }
            flow.owner = TAKEN | 24w0 ++ hdr.ipv4.protocol;
            index0 = CELL(timestamp_there, meta.hashes.word1);
            index1 = CELL(timestamp_there, meta.hashes.word0);
            if (meta.measured && (meta.from_host || passes)) {
                request.way0 = RECORD;
            } else if (ipv6 == 1 && passes) {
                request.others = RECORD;
            }
        }
        forwarding.apply(hdr, meta.before, meta.changed, ig_intr_md.ingress_port,
                         meta.hashes.word0, request.collects, ig_dprsr_md, ig_tm_md);
        cells.apply(request, flow, index0, index1, hdr.record);
        hdr.bridge = { UNMEASURED, meta.hashes.word0, meta.hashes.word1, 0 };
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
    Carried() carried;
    Request(2) request_of;
    Cells() cells;
    Counter<bit<64>, bit<2>>(4, CounterType_t.PACKETS) packets;
    request_t request;
    cell_t flow;
    index_t index0;
    index_t index1;
    bit<1> ipv6;
    mark_t given_back;
    bit<1> timestamp;
    bit<1> to_host;
    bit<16> missing;
    bool counts_here;
    bool is_open;

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
        key = { to_host : exact; ipv6 : exact; }
        actions = { count_here; NoAction; }
        const default_action = NoAction;
        size = 4;
    }

    action record_one() {
        is_open = true;
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
        request = { false, NOTHING, NOTHING, NOTHING };
        flow = { 0, hdr.ipv4.src, hdr.ipv4.dst, meta.ports, 0 };
        index0 = hdr.collect.next;
        index1 = hdr.collect.next;
        given_back = 0;
        to_host = 0;
        counts_here = false;
        is_open = false;
        before.apply(hdr, meta);
        carried.apply(hdr, ipv6, timestamp);
        host_ports.apply();
        leaving.apply();
        open.apply();
        compare();
        if (meta.kind == COLLECTING) {
            request_of.apply(hdr.collect, request);
        } else if (missing != 0) {
            discard();
        } else if (counts_here && is_open) {
            flow.owner = TAKEN | 24w0 ++ hdr.ipv4.protocol;
            index0 = CELL(timestamp, hdr.bridge.word1);
            index1 = CELL(timestamp, hdr.bridge.word0);
            if (meta.kind == MEASURED) {
                request.way0 = RECORD;
            } else if (ipv6 == 1) {
                request.others = RECORD;
            }
        }

        cells.apply(request, flow, index0, index1, hdr.record);

        if (meta.kind == COLLECTING || meta.kind == CONTINUED) {
            progress.apply(hdr.collect, meta.kind);
        } else if (counts_here && (meta.kind == MEASURED || ipv6 == 1)) {
            if (is_open) {
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
