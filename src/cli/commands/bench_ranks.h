/* SPDX-License-Identifier: MIT */
/* bench_ranks.h - ctxbank bench --ranks. */
#ifndef CMD_BENCH_RANKS_H
#define CMD_BENCH_RANKS_H

#include "cli/cmd.h"

int cb_bench_ranks_run(const struct opts *o, int n_threads); /* 0: default */

#endif
