/* SPDX-License-Identifier: MIT */
/* samples.c - a hash over samples of a file's tensors. */
#include "samples.h"

#include <xxhash.h>

enum { SAMPLE = 4096 };

uint64_t cb_gguf_samples(const struct gguf *g)
{
    uint64_t h = 0;

    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(g, i);
        const int64_t shape[] = { t->type, t->dim[0], t->dim[1], t->dim[2], t->dim[3] };
        const size_t n = t->size < SAMPLE ? t->size : SAMPLE;
        h = XXH3_64bits_withSeed(t->name.s, t->name.n, h);
        h = XXH3_64bits_withSeed(shape, sizeof shape, h);
        for (int part = 0; part < 3; part++)
            h = XXH3_64bits_withSeed((const char *)t->data + (t->size - n) / 2 * (size_t)part, n,
                                     h);
    }
    return h;
}
