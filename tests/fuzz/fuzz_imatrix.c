/* SPDX-License-Identifier: MIT */
/* fuzz_imatrix.c - importance matrices, as GGUF and as .dat. */
#include "fuzz_file.h"
#include "gguf/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct imatrix *m;

    if (!cb_imatrix_open(cb_fuzz_file(data, n), &m))
        cb_imatrix_close(m);
    return 0;
}
