/* SPDX-License-Identifier: MIT */
/* run_ops.h - times single ops: each ISA of the machine, each type of weights and of keys and
 * values, shapes of known models; beside the limits of the machine. */
#ifndef RUN_OPS_H
#define RUN_OPS_H

#include "time_ops.h"

int cb_bench_ops(const struct op_pick *pick, const struct team_params *team, op_emit emit,
                 void *arg);

#endif
