/* SPDX-License-Identifier: MIT */
/* isa.c - the CPU device on each instruction set. */
#include "isa.h"

#include <check.h>
#include <stdlib.h>

const char *const cb_isa[N_ISA] = { "scalar", "avx2", "avx512", "neon" };

struct device *cb_isa_open(int isa, int threads)
{
    struct device *d = NULL;

    setenv("CTXBANK_ISA", cb_isa[isa], 1);
    if (cb_device_open("cpu", threads, &d))
        d = NULL;
    unsetenv("CTXBANK_ISA");
    if (d)
        ck_assert_str_eq(d->isa, cb_isa[isa]);
    return d;
}
