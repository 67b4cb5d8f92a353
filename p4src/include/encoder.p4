// A flow encoder: the FermatSketch of one direction, both groups in each register.

// Encodes the packet in the part that its hierarchy names, or gives a collection packet an element
// of an array. `encoded` is false where the epoch has no buckets for the hierarchy.
control Encoder(in bit<1> timestamp, in hierarchy_t hierarchy,
                in word_t word0, in word_t word1, in word_t word2, in bit<20> fingerprint,
                in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                inout request_t request, inout record_h record,
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
        encoded = false;
        if (request.collects) {
            index0 = request.next;
            index1 = request.next;
            index2 = request.next;
        } else if (hierarchy != 0) {
            part.apply(timestamp, hierarchy, word0, word1, word2,
                       encoded, index0, index1, index2);
            cut.apply(src, dst, ports, protocol, fingerprint, fragments);
            if (encoded) {
                request.array0 = RECORD;
                request.array1 = RECORD;
                request.array2 = RECORD;
            }
        }
        array0.apply(request.array0, index0, fragments, record);
        array1.apply(request.array1, index1, fragments, record);
        array2.apply(request.array2, index2, fragments, record);
    }
}
