/* SPDX-License-Identifier: MIT */
/* own_reading.h - prompts that a connection's thread reads in a session of its own, in steps
 * between which answers get their turns. */
#ifndef OWN_READING_H
#define OWN_READING_H

#include "exchange.h"

struct own_reading {
    struct server *s;
    int (*gone)(void *arg); /* NULL: nobody watches */
    void *gone_arg;
};

/* Feeds ids[n]. CB_ECANCEL: the client has gone, or the server goes down. */
int cb_own_reading(const struct own_reading *r, cb_session *session, const int32_t *ids, int n,
                   const struct cb_prefill *how);

#endif
