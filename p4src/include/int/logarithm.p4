// Logarithms, by which a latency is compared with a mean: nothing multiplies or divides.

// Logarithms to the base 2, in 256ths: `least` and `most` have one added to them that is no more
// than the value's, and one that is no less. 0 stands for 1. Intervals are a 32nd of a power of two
// wide, and that is by how much they may be wrong.
control Logarithm(in bit<32> value, inout bit<16> least, inout bit<16> most) {
    action between(bit<16> low, bit<16> high) {
        least = least + low;
        most = most + high;
    }

    table intervals {
        key = { value : ternary; }
        actions = { between; }
        const default_action = between(0, 0);
        const entries = {
#include "generated/logarithms.p4"
        }
        size = 1024;
    }

    apply {
        intervals.apply();
    }
}

// No less than any two logarithms together; with any other added, the sign bit is left for what the
// difference says.
const bit<16> NO_THRESHOLD = 0x3FFF;
const bit<16> NEVER = 0x7FFF;
