/* SPDX-License-Identifier: MIT */
/* bench_ops.h - ctxbank bench --ops. */
#ifndef CMD_BENCH_OPS_H
#define CMD_BENCH_OPS_H

#include "cli/cmd.h"

int cb_bench_ops_run(const struct opts *o, int n_threads); /* 0: default */

#endif
