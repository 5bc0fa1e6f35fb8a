/* SPDX-License-Identifier: MIT */
/* reads.h - which tokens a decoded token has read: for measurements of what a policy chooses. */
#ifndef READS_H
#define READS_H

#include <stdint.h>

#include "attention.h"

/* look() is called when layer l has attended for a decoded token. */
struct read_watch {
    void (*look)(void *arg, const struct attention *a, int l);
    void *arg;
};

/* The rest is for look(). 1: the query heads of a KV head may have read different tokens */
int cb_reads_by_head(const struct attention *a);
/* Sets mark[p] = 1 for each position p that query head h of layer l has read. A slot of several
 * merged tokens counts for the position that it has. */
void cb_reads_mark(const struct attention *a, int l, int h, uint8_t *mark);

#endif
