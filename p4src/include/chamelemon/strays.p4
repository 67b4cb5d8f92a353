// Strays: packets for hosts that no sketch holds, each with a notice to the CPU by which their flow
// is known. Streams 0 and 1 are those whose mark has that timestamp bit and which the tables of the
// epoch have no bucket for, or whose epoch is over; stream 2 those that no edge has marked.

const bit<8> UNMARKED_STREAM = 2;

// `mark` is what the packet came with, as `notice_h` has it.
control Strays(in headers_t hdr, in bit<8> stream, in bit<8> mark, inout metadata_t meta,
               inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    Notices(3) notices;
    bit<32> number;
    bool is_sent;

    action note() {
        eg_dprsr_md.mirror_type = NOTICE_MIRROR;
        meta.notice.setValid();
        meta.notice.kind = NOTICE;
        meta.notice.stream = stream;
        meta.notice.number = number;
        meta.notice.src = hdr.ipv4.src;
        meta.notice.dst = hdr.ipv4.dst;
        meta.notice.ports = meta.ports;
        meta.notice.protocol = hdr.ipv4.protocol;
        meta.notice.mark = mark;
    }

    apply {
        notices.apply(stream, number, meta.session, is_sent);
        if (is_sent) {
            note();
        }
    }
}
