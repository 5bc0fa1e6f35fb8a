/* SPDX-License-Identifier: MIT */
/* mm_runs.h - for mm_ISA.c alone: products of bytes without VNNI, whose sums are 16 bits wide, and
 * the codes that panels hold for them. */
#ifndef MM_RUNS_H
#define MM_RUNS_H

#include "kern_mm.h"

/* How many groups of 4 columns can be added in 16 bits: codes up to 15, 31, 63 times 127, two
 * products a sum. With scales for each 16 columns at most those. */
static inline __attribute__((always_inline)) int mm_run(enum mm_panel kind)
{
    switch (kind) {
    case MM_SYM4:
    case MM_MIN4:
        return 8;
    case MM_SYM5:
    case MM_MIN5:
    case MM_MIN16:
        return 4;
    case MM_SYM16:
        return 2;
    default:
        return 1;
    }
}

/* The code of weight 0 in a panel; codes of 8 bits stay signed */
static inline __attribute__((always_inline)) int mm_run_zero(enum mm_panel kind)
{
    switch (kind) {
    case MM_SYM4:
        return 8;
    case MM_SYM5:
        return 16;
    case MM_SYM16:
        return 32;
    case MM_WIDE16:
        return 64;
    default:
        return 0;
    }
}

#endif
