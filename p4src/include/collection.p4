// Collection: packets from the switch's own CPU that go round through the recirculation port, take
// an element of a register along on each pass, and leave by the report port when they are full or
// done. Where a full packet leaves, a copy of its front goes on with the next element.
//
// A packet reads or clears, never both: the agent clears only what it has got whole. Elements that
// were lost on the way are asked for again.
//
// Which register a packet means is for each program to say, in its `request_t`; here, `collects` is
// set.

// Whether the packet comes from where it may, and where it goes after this pass. From elsewhere it
// is a packet like any other.
control CollectionPath(in collect_h collect, in PortId_t ingress_port, inout metadata_t meta,
                       inout request_t request,
                       inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                       inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    bool allowed;
    PortId_t report;
    PortId_t recirculation;

    action accept(PortId_t report_port, PortId_t recirculation_port, MirrorId_t session) {
        allowed = true;
        report = report_port;
        recirculation = recirculation_port;
        meta.session = session;
    }

    // Ports that collection packets may come from: the CPU's and that of recirculation.
    table collectors {
        key = { ingress_port : exact; }
        actions = { accept; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    apply {
        allowed = false;
        report = 0;
        recirculation = 0;
        collectors.apply();
        if (allowed && collect.isValid() && collect.left == 0) {
            // It asks for nothing, and would go round until that has wrapped.
            ig_dprsr_md.drop_ctl = 1;
        } else if (allowed && collect.isValid()) {
            request.collects = true;
            if (collect.left == 1) {
                ig_tm_md.ucast_egress_port = report;
            } else if (collect.room == 1) {
                ig_tm_md.ucast_egress_port = report;
                ig_dprsr_md.mirror_type = CONTINUE_MIRROR;
                meta.kind = CONTINUED;
            } else {
                ig_tm_md.ucast_egress_port = recirculation;
            }
        }
    }
}

// What the packet says after this pass. Packets that clear take nothing along.
control CollectionProgress(inout collect_h collect, in bit<8> kind) {
    apply {
        collect.next = collect.next + 1;
        collect.left = collect.left - 1;
        if (kind == CONTINUED) {
            collect.room = collect.limit;
        } else if (collect.access != CLEAR) {
            collect.room = collect.room - 1;
        }
    }
}
