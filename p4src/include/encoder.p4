// A flow encoder: the FermatSketch of one direction, both groups in each register.

#ifdef WRAPPING_ARITHMETIC
#include "bucket_wrapping.p4"
#else
#include "bucket_prime.p4"
#endif

// Encodes the packet in the part that its hierarchy names. `encoded` is false where the epoch has
// no buckets for it.
control Encoder(in bit<1> timestamp, in hierarchy_t hierarchy,
                in word_t word0, in word_t word1, in word_t word2, in bit<20> fingerprint,
                in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                out bool encoded)(bit<32> buckets) {
    PartIndex() part;
    Fragments() cut;
    BucketArray(2 * buckets) array0;
    BucketArray(2 * buckets) array1;
    BucketArray(2 * buckets) array2;
    index_t index0;
    index_t index1;
    index_t index2;
    fragments_t fragments;

    apply {
        part.apply(timestamp, hierarchy, word0, word1, word2, encoded, index0, index1, index2);
        if (encoded) {
            cut.apply(src, dst, ports, protocol, fingerprint, fragments);
            array0.apply(index0, fragments);
            array1.apply(index1, fragments);
            array2.apply(index2, fragments);
        }
    }
}
