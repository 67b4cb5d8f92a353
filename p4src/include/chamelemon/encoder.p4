// A flow encoder: the FermatSketch of one direction, both groups in each register.

// Encodes the packet in the part that its mark names, or gives a collection packet an element of an
// array.
control Encoder(in mark_t mark, in words_t masked, in bit<32> check,
                in bit<32> src, in bit<32> dst, in bit<32> ports, in bit<8> protocol,
                in request_t request, inout record_h record)(bit<32> buckets) {
    Modulo() modulo0;
    Modulo() modulo1;
    Modulo() modulo2;
    Fragments() cut;
    BucketArray(2 * buckets) array0;
    BucketArray(2 * buckets) array1;
    BucketArray(2 * buckets) array2;
    index_t index0;
    index_t index1;
    index_t index2;
    fragments_t fragments;

    apply {
        index0 = request.next;
        index1 = request.next;
        index2 = request.next;
        cut.apply(src, dst, ports, protocol, check, request.collects, fragments);
        if (!request.collects) {
            modulo0.apply(mark, masked.word0, index0);
            modulo1.apply(mark, masked.word1, index1);
            modulo2.apply(mark, masked.word2, index2);
        }
        array0.apply(request.array0, index0, fragments, record);
        array1.apply(request.array1, index1, fragments, record);
        array2.apply(request.array2, index2, fragments, record);
    }
}
