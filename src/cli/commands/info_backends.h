/* SPDX-License-Identifier: MIT */
/* info_backends.h - ctxbank info --backends, and how measured limits are shown. */
#ifndef INFO_BACKENDS_H
#define INFO_BACKENDS_H

#include "cli/cmd.h"
#include "device/limits.h"

int cb_info_backends(const struct opts *o);

/* Gigabytes and billions of operations a second; null where it is unknown */
json_t *cb_json_limits(const double *limit);
/* A line each, with `indent` spaces before it */
void cb_print_limits(const double *limit, int indent);

#endif
