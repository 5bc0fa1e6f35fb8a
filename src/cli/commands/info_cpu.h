/* SPDX-License-Identifier: MIT */
/* info_cpu.h - ctxbank info --cpu. */
#ifndef INFO_CPU_H
#define INFO_CPU_H

#include "cli/options/opts.h"

int cb_info_cpu(const struct opts *o);

#endif
