/* SPDX-License-Identifier: MIT */
/* info_plans.h - ctxbank info --plans: the memory of one context under each policy. */
#ifndef INFO_PLANS_H
#define INFO_PLANS_H

#include "cli/options/opts.h"

int cb_info_plans(const struct opts *o);

#endif
