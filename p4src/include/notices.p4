// Notices: what a program says of one packet or one flow at once, in a packet of its own to the
// switch's CPU. It is a mirrored copy of a packet, of which only the Ethernet header is of use; the
// packet itself goes its way.
//
// A program that sends notices declares `notice_h`, which begins with `kind`, which is NOTICE,
// `stream` and the 32 bits of `number`, and has what the notice says behind them. It defines
// NOTICES, and at egress fills `meta.notice` and sets NOTICE_MIRROR as the mirror type. On the wire
// the header follows Ethernet, with the type of collection packets, whose first byte, the source,
// is never NOTICE.
//
// Every event of a stream has a number, one more than the one before, whether a copy of it is sent
// or not. So the CPU knows from the register how many there were, and which of them it lacks.

// Numbers an event of a stream, and says whether the CPU is to get a notice of it, and by which
// mirror session: while fewer than so many are numbered, which the agent raises every epoch. While
// it says none, no copy is made.
control Notices(in bit<8> stream, out bit<32> number, out MirrorId_t session, out bool is_sent)
               (bit<32> streams) {
    Register<bit<32>, bit<8>>(streams, 0) numbers;
    RegisterAction<bit<32>, bit<8>, bit<32>>(numbers) next = {
        void apply(inout bit<32> value, out bit<32> rv) {
            rv = value;
            value = value + 1;
        }
    };
    bit<32> end;
    bit<32> left;

    action allow(bit<32> up_to, MirrorId_t by) {
        end = up_to;
        session = by;
    }

    table budgets {
        key = { stream : exact; }
        actions = { allow; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    // A condition can't compute.
    action compare() {
        left = end |-| number;
    }

    apply {
        end = 0;
        session = 0;
        number = next.execute(stream);
        budgets.apply();
        compare();
        is_sent = false;
        if (left != 0) {
            is_sent = true;
        }
    }
}
