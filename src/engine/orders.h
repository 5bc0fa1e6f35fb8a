/* SPDX-License-Identifier: MIT */
/* orders.h - what rank 0 tells the others: a call, its session, and what the call is given. */
#ifndef ORDERS_H
#define ORDERS_H

#include <pthread.h>
#include <stdint.h>

#include "ranks/ranks.h"

enum { ORDER_INLINE = 112 }; /* bytes; longer data follow in a message of their own */

struct order {
    int32_t verb, session;
    uint64_t n; /* bytes of data */
    char data[ORDER_INLINE];
};

struct cb_session;

/* What is dealt out: of a session its context, or of a model the rows of its matrices, or its
 * layers; or the context and the rows */
enum split { SPLIT_CONTEXT, SPLIT_TENSOR, SPLIT_LAYERS, SPLIT_BOTH };

/* A model whose calls are made on several ranks */
struct in_step {
    struct ranks *team;
    enum split how;
    pthread_mutex_t lock;   /* recursive: held from a call's begin to its end */
    int depth;              /* calls in progress: those within a call are not told */
    int broken;             /* 1: a call failed here alone; the ranks no longer agree */
    int n_id;               /* ids given so far, in the same order on every rank */
    struct cb_session **at; /* [n_id] open sessions by id, or NULL */
    size_t cap;
};

/* What a session is opened with, before the texts of its settings, each ended by NUL */
struct order_open {
    int32_t n_ctx, chunk, act_bits, guest;
    uint64_t checkpoint_bytes;
    int32_t has[4]; /* 0: the text is NULL */
};

/* What a prompt is told with, before its tokens */
struct order_prompt {
    int32_t gives, logits_from; /* enum gives */
};
/* NOTHING: more of the prompt follows */
enum gives { GIVES_LAST, GIVES_LOGITS, GIVES_STATES, GIVES_NOTHING };

#endif
