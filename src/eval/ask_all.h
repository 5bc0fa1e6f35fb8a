/* SPDX-License-Identifier: MIT */
/* ask_all.h - asks every item under every policy. The context goes through the model once for all
 * the policies whose prompt attends densely; each then compresses it and answers on its own. */
#ifndef RUN_H
#define RUN_H

#include "answer.h"
#include "ctxbank.h"
#include "item.h"

enum use_chat { CHAT_AUTO, CHAT_ALWAYS, CHAT_NEVER }; /* auto: as the benchmark does */

struct run {
    cb_model *model;
    char who[160];    /* name and quantisation */
    const char *form; /* of chat; NULL: the model has none */
    enum use_chat chat;
    const char *const *policy; /* [n_policy] */
    int n_policy;
    const char *type_k, *type_v, *prefill;
    int chunk, n_ctx;     /* 0 = default; the most tokens of an item */
    int aware, blind;     /* ask so */
    int truncate;         /* items that are too long lose their middle, else are skipped */
    uint64_t share_bytes; /* most that sessions may hold that share a prefill */

    int (*stop)(void *arg);                    /* non-zero: end with CB_ECANCEL */
    void (*note)(void *arg, const char *text); /* a line for the user */
    void (*progress)(void *arg, const char *task, int64_t done, int64_t total); /* tokens */
    void *arg;

    int n_long; /* out: items that were skipped as too long */
};

/* The full cache, at f16 with a dense prefill, is asked first in any case. */
struct answerer cb_run_full(const struct run *r, enum question q);
struct answerer cb_run_policy(const struct run *r, int policy, enum question q);
int cb_run_is_full(const struct run *r, int policy); /* the same as the full cache */

/* Sets the items' hashes. What `have` holds is not asked again; the rest is added to it. */
int cb_run(struct run *r, struct item_list *items, struct answers *have);

#endif
