/* SPDX-License-Identifier: MIT */
/* inside.h - short ways to what lies inside the library, for tests. */
#ifndef INSIDE_H
#define INSIDE_H

#include "device/device.h"
#include "par/affinity.h"
#include "text/tok.h"

static inline int cb_device_open(const char *name, int n_threads, struct device **out)
{
    return cb_device_open_team(name, &(struct team_params){ .n_threads = n_threads }, NULL, out);
}

static inline int cb_tok_open(const struct gguf *g, struct tok **out)
{
    return cb_tok_open_as(g, NULL, out);
}

#endif
