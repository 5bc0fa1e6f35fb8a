/* SPDX-License-Identifier: MIT */
/* parts.h - what attention reads, as data: each way of reading a layer makes a list of parts. The
 * parts are attended one by one and joined by their log-sum-exp. */
#ifndef PARTS_H
#define PARTS_H

#include "attention.h"

/* Some queries of a chunk, and the entries of each KV head that they read. */
struct part {
    int first, n;   /* queries first..first+n-1 of the chunk */
    const float *q; /* the first query [n_head][hd]; the next one is q_stride floats on */
    int q_stride;
    int causal, window; /* as in struct attn */
    int by_head;        /* 1: there is a run for each query head, not for each KV head */
    const struct attn_blocks *blocks; /* as in struct attn */
    int elsewhere;                    /* 1: its runs are not of the layer's store */
    int logit_later;                  /* as in struct attn */
    int dealt;                        /* 1: other ranks attend with the chunk's other queries */
    int joins;      /* 1: these queries have read a part before; the results are joined */
    int stands_for; /* an entry of a part that joins weighs as much as this many; 0 = 1. More on
                       the host's devices only */
    /* With skip <= 1, for a part that joins: a query's head skips this part if the parts it has
     * already read hold at least this share of the softmax. A decoded token, whose logits are
     * given, does not read the values then. */
    float skip;
    /* The slot of entry j, in runs without idx: slot[j] for j < n_slot, else after + j - n_slot. */
    const int32_t *slot;
    int n_slot, after;
};

/* The list of a session, and the work space of attending to it */
struct parts {
    int n, n_run; /* parts, and most runs of one */
    size_t cap;
    struct part *part;  /* [cap] */
    struct kv_run *run; /* [cap][n_run] */
    float *lse;         /* [chunk][n_head] */
    /* A part that joins has its own results, [chunk][n_head * hd] and [chunk][n_head], and
     * [n_head] 1 = the head skips the part. NULL: no part joins */
    float *out2, *lse2;
    int *skips;
    /* lse, out2 and lse2 in a device's own memory, for calls of which the host looks at none; NULL:
     * there is none to spare */
    float *far_lse, *far_out2, *far_lse2;
};

int cb_parts_open(struct attention *a);
void cb_parts_close(struct attention *a);

void cb_parts_clear(struct attention *a);
/* Adds a part. The caller fills its runs [n_kv] (or [n_head], see by_head) -> *run, which stay
 * valid until the next call. */
int cb_parts_add(struct attention *a, const struct part *p, struct kv_run **run);
/* Parts with queries of chunk c, for the caller to adapt: all, n of them from `first` on, or one,
 * which sees all that its part reads */
struct part cb_parts_of(const struct attention *a, const struct chunk *c);
struct part cb_parts_some(const struct attention *a, const struct chunk *c, int first, int n);
struct part cb_parts_one(const struct attention *a, const struct chunk *c, int i);

/* Adds a part that reads the slots of c's layer from `from` on, less the newest `left` of each KV
 * head. logit: where a decoded token's are to be left, [n_head][n_ctx], or NULL */
int cb_parts_add_slots(struct attention *a, const struct chunk *c, const struct part *p, int from,
                       int left, float *logit);
/* The first n queries of c read everything before them. */
int cb_parts_add_first(struct attention *a, const struct chunk *c, int n);
/* Adds a part that reads the slots list[n], the same in all heads; */
int cb_parts_add_list(struct attention *a, const struct chunk *c, const struct part *p,
                      const int32_t *list, int n);
/* or a list for each KV head: the n[h] slots at list + h * stride */
int cb_parts_add_lists(struct attention *a, const struct chunk *c, const struct part *p,
                       const int32_t *list, size_t stride, const int *n);

/* Adds the part with all that chunk c sees of its layer's store. logit: where a decoded token's are
 * to be left, [n_head][n_ctx], or NULL */
int cb_parts_whole(struct attention *a, const struct chunk *c, float *logit);

/* Where ranks deal out the queries of a prompt (context_split.h), this rank keeps its share of the
 * chunk's only part. */
void cb_parts_deal(struct attention *a, const struct chunk *c);

static inline int cb_parts_n(const struct attention *a)
{
    return a->parts->n;
}

static inline const struct part *cb_parts_at(const struct attention *a, int i)
{
    return &a->parts->part[i];
}

static inline struct kv_run *cb_parts_runs(const struct attention *a, int i)
{
    return a->parts->run + (size_t)i * (size_t)a->parts->n_run;
}

/* 1: the decoded token's query head h has left part i out, which holds too little (skip) */
int cb_parts_left_out(const struct attention *a, int i, int h);

/* Arguments of the attention op for layer l, without queries and runs */
struct attn cb_parts_attn(const struct attention *a, int l);
/* The same with the queries, mask and runs of part i */
struct attn cb_parts_attn_of(const struct attention *a, int l, int i);
/* Asks the kernel for the rows that the parts of layer l read. */
void cb_parts_prefetch(const struct attention *a, int l);

/* Attends to all parts of n <= ATTENTION_CALLS lists -> out, lse of each call; lse is valid until
 * the session's next call, and NULL if wants_lse is 0 and no part joins. Calls that read one part
 * share one loop of the device. What other ranks read is joined (context_split.h). Adds the bytes
 * that a decoded token reads to the bank's count. */
int cb_parts_attend(struct attention_call *call, int n);
/* Counts the pairs of a call whose queries read all rows without parts. */
void cb_parts_count_all(const struct attention_call *call);

#endif
