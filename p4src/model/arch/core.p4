// What every P4_16 program may rely on (P4_16 language specification, core library).
// packet_in, packet_out and their methods are built into the model.

#ifndef CALUMMA_CORE
#define CALUMMA_CORE

error {
    NoError,
    PacketTooShort,
    NoMatch,
    StackOutOfBounds,
    HeaderTooShort,
    ParserTimeout,
    ParserInvalidArgument
}

match_kind {
    exact,
    ternary,
    lpm
}

action NoAction() {}
#endif
