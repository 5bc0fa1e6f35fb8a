/* SPDX-License-Identifier: MIT */
/* ask_all.h - asks every item under every policy. The context is prefilled once for all policies
 * whose prompt attends densely; each of them then compresses it and answers on its own. */
#ifndef ASK_ALL_H
#define ASK_ALL_H

#include "answer.h"
#include "ctxbank.h"
#include "item.h"

enum use_chat { CHAT_AUTO, CHAT_ALWAYS, CHAT_NEVER }; /* auto: as the benchmark does */

struct run {
    cb_model *model;
    char who[160];    /* name and quantisation */
    const char *form; /* chat form; NULL: the model has none */
    enum use_chat chat;
    const char *const *policy; /* [n_policy] */
    int n_policy;
    const char *type_k, *type_v, *prefill;
    int chunk, n_ctx;       /* chunk 0 = default; n_ctx: most tokens of an item */
    int aware, blind;       /* how to ask: question known to the policy, or not */
    const char *bank_path;  /* a saved bank that items may begin with, or NULL */
    const cb_session *bank; /* the same, opened */
    int truncate;           /* 1: items that are too long lose their middle; 0: are skipped */
    uint64_t share_bytes;   /* most bytes that the sessions of a shared prefill may hold */

    /* Puts what is chosen for a context in the place of a policy that stands for others; NULL: none
     * does. */
    int (*choose)(void *arg, struct cb_session_params *p);
    int (*stop)(void *arg);                    /* non-zero: end with CB_ECANCEL */
    void (*note)(void *arg, const char *text); /* a line for the user */
    void (*progress)(void *arg, const char *task, int64_t done, int64_t total); /* tokens */
    void *arg;

    int n_long;   /* out: items that were skipped as too long */
    int n_banked; /* out: answers whose prompt began with the saved bank */
};

/* The full cache (f16, dense prefill), which is always asked first. */
struct answerer cb_run_full(const struct run *r, enum question q);
struct answerer cb_run_policy(const struct run *r, int policy, enum question q);
int cb_run_is_full(const struct run *r, int policy); /* 1: the policy is the full cache */

/* Sets the items' hashes. Skips the answers that `have` holds and adds the others to it. */
int cb_run(struct run *r, struct item_list *items, struct answers *have);

#endif
