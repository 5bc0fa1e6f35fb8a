/* SPDX-License-Identifier: MIT */
/* attention.h - the state that attention works on: one session's model, bank and policy, and the
 * private state of each file in this room. attend.c is the entry point; every other file here takes
 * this struct. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "bank/bank.h"
#include "model/model.h"
#include "policy/policy.h"

/* Slots from..to-1 of a prompt that a feed repeats; to 0: it repeats nothing */
struct piece {
    int from, to;
};

/* What a reader does with its layers. Others ask for traits, never for a reader's name. */
enum reader_trait {
    /* Every query reads all rows, as they are stored and at their positions; the logits of a
     * decoded token can be left. */
    READ_PLAIN = 1 << 0,
    READ_DENSE = 1 << 1,     /* a prompt in an empty timeline attends densely */
    READ_EXTENDS = 1 << 2,   /* what it keeps does not depend on how a dense prompt was fed */
    READ_PROMPT = 1 << 3,    /* a prompt reads all rows as they are stored */
    READ_STEP = 1 << 4,      /* a decoded token does */
    READ_PREPACKS = 1 << 5,  /* rows may be prepacked, since nobody reads them one by one */
    READ_ANY_ORDER = 1 << 6, /* rows may lie in any order */
    READ_SORTED = 1 << 7,    /* rows lie in the order of slots whenever it makes parts */
    READ_JOINS = 1 << 8,     /* its parts join */
    READ_BY_HEAD = 1 << 9,   /* a part may have a run for each query head */
    READ_TURNS = 1 << 10,    /* it turns queries to other positions */
    READ_BY_PARTS = 1 << 11, /* a decoded token's scores are of its parts, not of the store */
    READ_LSE = 1 << 12,      /* attended() needs the log-sum-exp */
    READ_PLANES = 1 << 13,   /* it searches keys in planes */
    READ_UNDOES = 1 << 14,   /* slots that a failed feed has found may have changed */
    READ_LATE = 1 << 15,     /* unheld_bytes() are those after the next layer has attended */
    /* It reads a state that stands for all tokens, and no rows. The layer's rows, if it has any,
     * have a reader of their own. */
    READ_STATE = 1 << 16,
    READ_WINDOW = 1 << 17,  /* rows outside the model's window are never read */
    READ_RESUMES = 1 << 18, /* a cut goes to a checkpoint, which has the rows of the window */
    /* All rows are stored as they come, and what the reader has beside them is made from them by
     * cb_store_sketch(), or for the next token. */
    READ_SHARES = 1 << 19,
    READ_FIRST = 1 << 20, /* a prompt in an empty timeline reads all rows as they are stored */
    /* Its state begins with struct index_sets (index_keys.h), and it takes what a selector makes of
     * a decoded token where the device has made it. */
    READ_INDEX = 1 << 21,
};

struct reader;
/* A reader in a session */
struct reading {
    const struct reader *r;
    void *x; /* its state of the session's layers, or NULL */
};

struct scoring;
/* A scoring of prompts in a session */
struct scored {
    const struct scoring *how; /* NULL: no layer has it */
    void *x;                   /* its state of the session's layers, or NULL */
};

struct prefill;
/* How prompts attend in a session */
struct prompt_reading {
    const struct prefill *how; /* NULL: densely */
    void *x;                   /* its state */
    struct policy *form;       /* as the user chose it */
    struct prompt_plan plan;   /* its plan, in the model's numbers of layers */
    int joins;                 /* 1: it makes parts that join */
};

struct attention {
    const struct cb_model *model;
    struct device *dev;
    struct device *host; /* cb_device_host(dev): what readers keep in the host's memory is read
                            there */
    struct bank *bank;
    struct policy *policy;
    const struct layer_plan *plan; /* [n_layer] the policy's */
    const struct rope *rope;       /* [ROPE_TABLES] the session's */
    int chunk;                     /* most tokens that go through a layer at once */
    int draft_index;               /* of the token among those decoded together */
    int max_draft;                 /* most tokens decoded in one call so far, or expected */
    int cold_pages;                /* > 0: rows may lie on the disk, so they are asked for */

    struct draft_rows *draft;  /* draft_rows.c; NULL: no layer needs it */
    struct store *const *lent; /* [n_layer] those of another session that layers read, where
                                  they have none (model/assistant.h); or NULL */

    struct reading **layer;  /* [n_layer] how its rows are read (reader_table.c) */
    struct reading **beside; /* [n_layer] how its state is; NULL: it has none */
    struct reading *reading; /* [n_reading] the readers that the session has */
    int n_reading;
    unsigned traits; /* of any of them */

    struct parts *parts;           /* parts.c */
    struct turned_queries *turned; /* turned_queries.c; NULL where no reader turns any */
    struct prompt_reading prompt;  /* prefill_table.c */
    struct scored **scored;        /* [n_layer] how prompts are scored (scoring_table.c); or NULL */
    struct scored *scorings;       /* [rows of that table] */
    int by_repeat;                 /* 1: a layer is scored by a repetition of the prompt */
    struct score_space *scores_at; /* scores.c; NULL where the plan wants no scores */
    int *pass;             /* token_pruning.c, [n_ctx]; NULL where all layers compute all tokens */
    int repeats;           /* 1: the prompt in progress will be repeated; late layers wait for it */
    struct piece repeated; /* by the current feed */
    struct eviction *eviction;      /* NULL where the policy drops nothing */
    struct context_split *split;    /* context_split.c; NULL: this process has the whole context */
    const struct read_watch *watch; /* reads.h; NULL: nobody asks what tokens read */
    struct scores scores;           /* of the layer that attended last */
    int has_scores;

    /* Shared prefill (engine/shared_prefill.c): the sessions that take over the keys, values and
     * queries of the current prompt, and the session that computes them. */
    struct attention *const *follower; /* [n_follower] */
    int n_follower;
    const struct attention *leader; /* NULL: this session computes its own */
};

/* What a layer's trained selector makes of tokens that go through it, for a layer that scores:
 * queries [n][selector.n_head][selector.hd] and keys [n][selector.hd], rotated, and weights
 * [n][selector.n_head] of the heads; `stride` floats from one token to the next, a row in the order
 * queries, key, weights. q NULL: nothing */
struct index_rows {
    const float *q, *k, *weight;
    int stride;
    int far; /* 1: they are in the device's memory, 0: in the host's */
};

/* Tokens that go through one layer: queries [n][n_head][hd], keys and values [n][n_kv][hd],
 * rotated; `stride` floats from one token to the next. */
struct chunk {
    int l;
    const float *q, *k, *v;
    int stride, n;
    int pos0;    /* position of the first token */
    int pos_end; /* their feed ends before this position */
    /* [n] positions, where an earlier layer has left tokens of the feed out (token_pruning.h): pos0
     * and pos_end are then as if those had never been fed. NULL: pos0, pos0 + 1, .. pos[-1] is that
     * of the token before, if that is of the feed. */
    const int32_t *pos;
    struct index_rows index; /* of layers whose selector scores */
    const float *made; /* rows of struct entry_columns, in the host's memory, the scoring heads'
                          queries rotated; NULL: the layer has no entries */
    int made_stride;
};

/* A layer after a prompt and n_gen generated tokens, for the memory plan */
struct planned {
    int n_prompt, n_gen;
    int n_slot; /* slots of a KV head that are left */
};

/* A session's part of a call of cb_attend() */
enum { ATTENTION_CALLS = 16 }; /* most that attend together */
struct attention_call {
    struct attention *a;
    struct chunk c;
    float *out;         /* [c.n][n_head * hd] */
    const void *family; /* as in struct attn */
    int wants_lse;      /* the rest is private to this room */
    float *logit;       /* where a decoded token's logits are left, or NULL */
    float *lse;         /* [c.n][n_head], or NULL */
};

/* Tokens that go through the state of layer l: n_tok of one session, or one of each of n. The first
 * session's work space serves all. */
struct mix_call {
    struct attention *const *a; /* [n] */
    int n, l, n_tok;
    int bits;        /* of activations, as in struct mm */
    const float *in; /* [n_tok][n_embd] */
    float *low;      /* work space of products (model/adapted_product.h) */
};

/* How many of the last tokens a query of layer l sees, limited by the model and by the plan; 0 =
 * all. */
static inline int cb_attention_window(const struct attention *a, int l)
{
    const int own = a->model->layer[l].window, asked = a->plan[l].window;
    return own && asked ? (own < asked ? own : asked) : own + asked;
}

/* The layer whose slots layer l reads: it or an earlier one; -1: one of another session */
static inline int cb_attention_owner(const struct attention *a, int l)
{
    return l - a->model->layer[l].kv_back;
}

/* The slots that layer l reads */
static inline struct store *cb_attention_store(const struct attention *a, int l)
{
    const int at = cb_attention_owner(a, l);
    return at >= 0 ? &a->bank->store[at] : a->lent ? a->lent[l] : &a->bank->store[l];
}

/* A store of those that policies act on, which have the same heads */
static inline const struct store *cb_attention_typical(const struct attention *a)
{
    return &a->bank->store[a->model->global ? a->model->global[0] : 0];
}

static inline int cb_attention_group(const struct attention *a)
{
    return a->model->hp.n_head / a->model->hp.n_kv;
}

/* Floats in one token's queries, or in its output, in a layer that policies act on */
static inline size_t cb_attention_row(const struct attention *a)
{
    return (size_t)a->model->hp.n_head * (size_t)a->model->hp.hd;
}

#endif
