/* SPDX-License-Identifier: MIT */
/* isa.c - the CPU device on each instruction set. */
#include "isa.h"

#include <check.h>
#include <stdlib.h>

#include "par/affinity.h"

const char *const cb_isa[N_ISA] = { "scalar", "avx2", "avx512", "neon" };

struct device *cb_isa_open(int isa, int threads)
{
    return cb_isa_open_with(isa, threads, NULL);
}

struct device *cb_isa_open_with(int isa, int threads, const char *matmul)
{
    const struct device_want want = { .isa = cb_isa[isa], .matmul = matmul };
    const struct team_params team = { .n_threads = threads };
    struct device *d = NULL;

    if (cb_device_open_team("cpu", &team, &want, &d))
        d = NULL;
    if (d)
        ck_assert_str_eq(d->isa, cb_isa[isa]);
    return d;
}
