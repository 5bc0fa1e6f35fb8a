/* SPDX-License-Identifier: MIT */
/* cross_layer.c - layers that take the logits of distant tokens from an earlier layer (PoD, Ma et
 * al. 2024, section 2.2). Per KV head, a follower keeps its own keys only for the first and the
 * most recent tokens. For the tokens between, it uses its leader's queries and keys with its own
 * values. The parts are joined by their log-sum-exp, which is the paper's gate. For a prompt, the
 * leader's queries are kept until the block ends; a decoded token leaves its logits. */
#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"
#include "whole.h"

struct cross_layer {
    float *logit;        /* [n_head][n_ctx] the leaders' logits of the token being decoded */
    float *q;            /* [cap_q][n_head * hd] the leaders' queries of a prompt */
    size_t cap_q;        /* tokens */
    int32_t *near;       /* [n_kv][n_ctx] */
    struct kv_kivi *mix; /* [n_kv] the leader's quantised keys beside the layer's own values */
};

/* The slots that KV head kv of layer l, a follower, reads for one query: near slots are [from, lo)
 * and [hi, n), far slots are [lo, hi). */
struct span {
    int from, lo, hi;
};

/* ---- open ---- */

static int claims(const struct claim *c)
{
    return c->row->cross.from != NULL;
}

static int leader(const struct attention *a, int l, int kv)
{
    return a->plan[l].cross.from[kv];
}

/* KV heads that take logits from their leader */
static int followers(const struct attention *a, int l)
{
    int n = 0;
    for (int kv = 0; kv < a->bank->n_kv; kv++)
        n += leader(a, l, kv) != l;
    return n;
}

static int open(struct attention *a, void *state)
{
    const struct bank *b = a->bank;
    struct cross_layer *x = state;

    for (int l = 0; l < b->n_layer; l++)
        for (int kv = 0; cb_reader_state(a, l) == x && kv < b->n_kv; kv++)
            if (leader(a, l, kv) != l) /* most of its keys are dropped, the rest never quantised */
                cb_kivi_keys_stay(&b->store[l], kv);
    /* memory for these is committed page by page as the context grows */
    x->logit = cb_state_alloc(x, (size_t)a->model->hp.n_head * (size_t)b->n_ctx, sizeof *x->logit);
    x->near = cb_state_alloc(x, (size_t)b->n_kv * (size_t)b->n_ctx, sizeof *x->near);
    x->mix = cb_state_calloc(x, (size_t)b->n_kv, sizeof *x->mix);
    return CB_OK;
}

static size_t work_bytes(const struct attention *a, const void *x, int n_feed, int n_most)
{
    const size_t rows = (size_t)a->model->hp.n_head + (size_t)a->bank->n_kv;

    (void)x;
    return (rows * (size_t)n_most + (size_t)n_feed * cb_attention_row(a)) * sizeof(float);
}

/* The next layer that shares logits; n_layer: none */
static int next_of(const struct attention *a, int l)
{
    const void *x = cb_reader_state(a, l);

    do
        l++;
    while (l < a->bank->n_layer && cb_reader_state(a, l) != x);
    return l;
}

/* Saves the leaders' queries of a prompt for their followers. */
static int stored(struct attention *a, const struct chunk *c)
{
    const size_t head = (size_t)(cb_attention_group(a) * a->bank->hd);
    const int first = c->pos0 - a->bank->n_seen, next = next_of(a, c->l);
    struct cross_layer *x = cb_reader_state(a, c->l);

    if (a->bank->decoding)
        return CB_OK;
    TRY(cb_state_fit(x, &x->q, &x->cap_q, (size_t)(c->pos_end - a->bank->n_seen),
                     cb_attention_row(a) * sizeof *x->q));
    if (next == a->bank->n_layer)
        return CB_OK;
    for (int kv = 0; kv < a->bank->n_kv; kv++)
        if (leader(a, next, kv) == c->l)
            cb_device_copy_rows(a->dev,
                                x->q + (size_t)first * cb_attention_row(a) + (size_t)kv * head,
                                cb_attention_row(a) * sizeof *c->q, c->q + (size_t)kv * head,
                                (size_t)c->stride * sizeof *c->q, head * sizeof *c->q, c->n);
    return CB_OK;
}

/* The last of these layers needs no queries any more. */
static int settle(struct attention *a, int l)
{
    struct cross_layer *x = cb_reader_state(a, l);

    if (next_of(a, l) < a->bank->n_layer)
        return CB_OK;
    cb_state_drop(x, x->q);
    x->q = NULL;
    x->cap_q = 0;
    return CB_OK;
}

/* ---- who reads what ---- */

/* The number of recent tokens that the layer reads with its own keys. */
static int recent_of(const struct attention *a, int l)
{
    const struct cross_layer_plan *r = &a->plan[l].cross;
    return a->bank->store[l].pos && r->recent_after ? r->recent_after : r->recent;
}

/* The first slot of a KV head at position pos or after it. */
static int slot_at(const struct store *st, int kv, int pos)
{
    int lo = 0, hi = st->n[kv];

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (cb_store_pos(st, kv, mid) < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Near and far slots for the query at position pos. */
static struct span span_of(const struct attention *a, int l, int kv, int pos)
{
    const struct store *st = &a->bank->store[l];
    const int window = cb_attention_window(a, l);
    struct span x = { 0 };

    x.from = window && pos >= window ? slot_at(st, kv, pos - window + 1) : 0;
    x.lo = max_int(x.from, slot_at(st, kv, a->plan[l].cross.sink));
    x.hi = max_int(x.lo, slot_at(st, kv, pos - recent_of(a, l) + 1));
    return x;
}

static float *logits_of(const struct attention *a, int l, int kv)
{
    const struct cross_layer *x = cb_reader_state(a, l);
    return x->logit + (size_t)(kv * cb_attention_group(a)) * (size_t)a->bank->n_ctx;
}

/* ---- a decoded token ---- */

/* The values of the far slots, weighted by the leaders' logits. */
static int far_part(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    p.joins = 1;
    p.window = 0;
    p.skip = a->plan[c->l].cross.skip;
    TRY(cb_parts_add(a, &p, &run));
    for (int kv = 0; kv < st->n_kv; kv++) {
        const struct span x = span_of(a, c->l, kv, c->pos0);
        run[kv] = cb_store_run(st, kv, x.lo, x.hi);
        run[kv].logit = logits_of(a, c->l, kv) + x.lo;
        run[kv].given = 1;
        if (leader(a, c->l, kv) == c->l)
            run[kv].n = 0;
    }
    return 1;
}

/* Leaders read everything and leave their logits; followers read their near slots, then the far
 * ones. */
static int step_parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct cross_layer *own = cb_reader_state(a, c->l);
    const struct part p = cb_parts_of(a, c);
    struct kv_run *run;
    int any = 0;

    TRY(cb_parts_add(a, &p, &run));
    for (int kv = 0; kv < st->n_kv; kv++) {
        const struct span x = span_of(a, c->l, kv, c->pos0);
        int32_t *near = own->near + (size_t)kv * (size_t)a->bank->n_ctx;
        run[kv] = cb_store_run(st, kv, 0, st->n[kv]);
        if (leader(a, c->l, kv) == c->l) {
            run[kv].logit = logits_of(a, c->l, kv);
            continue;
        }
        if (x.hi == x.lo)
            continue;
        any = 1;
        run[kv].idx = near;
        run[kv].n = st->n[kv] - x.from - (x.hi - x.lo);
        for (int i = x.from; i < x.lo; i++)
            *near++ = i;
        for (int i = x.hi; i < st->n[kv]; i++)
            *near++ = i;
    }
    return any ? far_part(a, c) : 1;
}

/* ---- a prompt ---- */

/* A run of slots x.lo..x.hi-1 with the leader's keys and the layer's own values. */
static struct kv_run far_run(const struct attention *a, int l, int kv, struct span x)
{
    const struct store *st = &a->bank->store[l], *lead = &a->bank->store[leader(a, l, kv)];
    struct kv_run run = cb_store_run(st, kv, x.lo, x.hi);
    const struct cross_layer *own = cb_reader_state(a, l);
    struct kv_kivi *mix = &own->mix[kv];

    if (!cb_kivi_any(st) && !cb_kivi_any(lead)) {
        run.k = cb_store_run(lead, kv, x.lo, x.hi).k;
        return run;
    }
    *mix = lead->kivi->head[kv];
    mix->bits_v = st->kivi->head[kv].bits_v;
    mix->group_v = st->kivi->head[kv].group_v;
    mix->lo_v = st->kivi->head[kv].lo_v;
    mix->n_v = st->kivi->head[kv].n_v;
    mix->v = st->kivi->head[kv].v;
    mix->row_v = st->kivi->head[kv].row_v;
    run.k = cb_store_row(lead, kv, 0, 0);
    run.v = cb_store_row(st, kv, 1, 0);
    run.kivi = mix;
    run.first = x.lo;
    return run;
}

enum who { LEADERS, RECENT, SINKS, FAR };

/* Adds one part of leaders or followers, for queries first..end-1 of the chunk. The last query is
 * at position pos. */
static int add_part(struct attention *a, const struct chunk *c, enum who who, int first, int end,
                    int pos)
{
    const struct store *st = &a->bank->store[c->l];
    const int window = cb_attention_window(a, c->l), recent = recent_of(a, c->l);
    struct part p = cb_parts_some(a, c, first, end - first);
    struct kv_run *run;

    p.joins = who != LEADERS;
    if (who == RECENT)
        p.window = st->pos ? 0 : window ? min_int(window, recent) : recent;
    if (who == SINKS)
        p.causal = p.window = 0;
    if (who == FAR) {
        const struct cross_layer *own = cb_reader_state(a, c->l);
        p.window = window && !st->pos ? window - recent : 0;
        p.q = own->q + (size_t)(c->pos0 - a->bank->n_seen + first) * cb_attention_row(a);
        p.q_stride = (int)cb_attention_row(a);
        p.skip = a->plan[c->l].cross.skip;
    }
    TRY(cb_parts_add(a, &p, &run));
    for (int kv = 0; kv < st->n_kv; kv++) {
        const int n = st->n[kv] - (c->n - end); /* slots that the last query sees */
        struct span x = span_of(a, c->l, kv, pos);
        if ((leader(a, c->l, kv) == c->l) != (who == LEADERS))
            continue;
        if (who == FAR && p.n > 1) /* the part's window says what each query sees */
            x.lo = slot_at(st, kv, a->plan[c->l].cross.sink);
        if (who == LEADERS || (who == RECENT && !st->pos))
            run[kv] = cb_store_run(st, kv, 0, n);
        else if (who == RECENT)
            run[kv] = cb_store_run(st, kv, x.hi, n);
        else if (who == SINKS)
            run[kv] = cb_store_run(st, kv, x.from, x.lo);
        else
            run[kv] = far_run(a, c->l, kv, x);
    }
    return CB_OK;
}

/* How many of up to n queries, from position pos on, read the same sinks: 1 where slots are not
 * positions, or while the window passes over the sinks. */
static int alike(const struct attention *a, int l, int pos, int n)
{
    const int window = cb_attention_window(a, l), sink = a->plan[l].cross.sink;

    if (a->bank->store[l].pos)
        return 1;
    if (!window || pos >= window + sink - 1)
        return n;
    return pos < window ? min_int(n, window - pos) : 1;
}

static int prompt_parts(struct attention *a, const struct chunk *c)
{
    const int window = cb_attention_window(a, c->l), recent = recent_of(a, c->l);
    int first = a->plan[c->l].cross.sink + recent - c->pos0; /* first query with far slots */

    if (!followers(a, c->l) || (window && window <= recent))
        first = c->n;
    first = max_int(0, min_int(first, c->n));
    if (first > 0)
        TRY(cb_parts_add_first(a, c, first)); /* they have no far slots */
    while (first < c->n) {
        const int end = first + alike(a, c->l, c->pos0 + first, c->n - first);
        const int pos = c->pos0 + end - 1,
                  gone = window && c->pos0 + first >= window + a->plan[c->l].cross.sink - 1;
        TRY(add_part(a, c, LEADERS, first, end, pos)); /* followers read nothing here */
        TRY(add_part(a, c, RECENT, first, end, pos));
        if (!gone)
            TRY(add_part(a, c, SINKS, first, end, pos));
        TRY(add_part(a, c, FAR, first, end, pos));
        first = end;
    }
    return 1;
}

static int parts(struct attention *a, const struct chunk *c)
{
    return a->bank->decoding ? step_parts(a, c) : prompt_parts(a, c);
}

/* Drops keys that no later query will read. */
static int attended(struct attention *a, const struct chunk *c, const float *lse)
{
    struct store *st = &a->bank->store[c->l];
    const int32_t last = cb_store_pos(st, 0, st->n[0] - 1);

    (void)lse;
    for (int kv = 0; kv < st->n_kv; kv++)
        if (leader(a, c->l, kv) != c->l) {
            const int lo = slot_at(st, kv, a->plan[c->l].cross.sink);
            cb_store_drop_keys(st, kv, lo,
                               max_int(lo, slot_at(st, kv, last - recent_of(a, c->l) + 1)));
        }
    return CB_OK;
}

static const char *uncut(const struct attention *a, const void *x, int n)
{
    (void)a, (void)x, (void)n;
    return "its layers have dropped keys";
}

/* ---- memory ---- */

/* The number of far slots when n tokens were fed and n_slot slots are left. */
static int n_far(const struct attention *a, int l, int n, int n_slot)
{
    const struct cross_layer_plan *r = &a->plan[l].cross;
    const int far = n_slot - r->sink - (n_slot == n ? r->recent : r->recent_after);

    return far > 0 && (n_slot == n || r->recent_after) ? far : 0;
}

/* A lower bound where the number depends on the text. */
static uint64_t unheld_bytes(const struct attention *a, int l, const struct planned *p)
{
    return (uint64_t)followers(a, l) * (uint64_t)n_far(a, l, p->n_prompt + p->n_gen, p->n_slot) *
           a->bank->store[l].row_k;
}

/* Logits in place of the keys that are not read */
static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const int far = followers(a, l) * n_far(a, l, p->n_prompt + p->n_gen, p->n_slot);

    return cb_whole_read_bytes(a, l, n, p, scanned) +
           (uint64_t)((int64_t)far *
                      (cb_attention_group(a) * (int)sizeof(float) - (int)a->bank->store[l].row_k));
}

const struct reader cb_reader_cross_layer = {
    .name = "logits of an earlier layer",
    .traits = READ_SORTED | READ_JOINS | READ_UNDOES,
    .undraftable = "its layers read what another layer computed for the same token",
    .no_choice = "its layers hold keys of their own for a few tokens only, so no others can be "
                 "chosen",
    .claims = claims,
    .state = sizeof(struct cross_layer),
    .open = open,
    .work_bytes = work_bytes,
    .uncut = uncut,
    .stored = stored,
    .parts = parts,
    .attended = attended,
    .settle = settle,
    .read_bytes = read_bytes,
    .unheld_bytes = unheld_bytes,
};
