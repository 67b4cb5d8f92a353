// The bucket arrays of the layout's arithmetic; both files declare the same names.

#ifdef WRAPPING_ARITHMETIC
#include "bucket_wrapping.p4"
#else
#include "bucket_prime.p4"
#endif
