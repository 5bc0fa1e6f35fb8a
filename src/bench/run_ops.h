/* SPDX-License-Identifier: MIT */
/* run_ops.h - times single ops: each ISA of the machine or one of its devices, each type of weights
 * and of keys and values, shapes of known models; beside the limits of the machine or device. */
#ifndef RUN_OPS_H
#define RUN_OPS_H

#include "time_ops.h"

/* name: "cpu", or another device, which is opened as `want` says */
int cb_bench_ops(const struct op_pick *pick, const struct team_params *team, const char *name,
                 const struct device_want *want, op_emit emit, void *arg);

#endif
