/* SPDX-License-Identifier: MIT */
/* snapshot.h - rows of a session as they were at one moment, in pages that its copies share until
 * they write to them. */
#ifndef SNAPSHOT_H
#define SNAPSHOT_H

#include "bank/store_areas.h"

struct snapshot;

/* The rows among area[n]; the caller drops it. NULL: there are none, or the system gives no such
 * memory. */
struct snapshot *cb_snapshot_take(const struct area *area, int n);
struct snapshot *
cb_snapshot_share(struct snapshot *p);      /* another one who drops it; NULL is allowed */
void cb_snapshot_drop(struct snapshot **p); /* sets *p to NULL */
int cb_snapshot_has_others(const struct snapshot *p); /* 1: another one drops it later */
/* Shows the area's rows at `to`, whose memory was never written; `p` may have more or fewer of
 * them. Returns how many bytes are there now. */
size_t cb_snapshot_show(const struct snapshot *p, const struct area *to);

#endif
