/* SPDX-License-Identifier: MIT */
/* chooser.c - a layer that reads everything chooses, at each decoded token, the slots that later
 * layers read: those with the largest score of any query head (OmniKV, Hao et al. 2025, section
 * 4.2). The score is a softmax over the candidates, from the logits of the layer's own attention.
 * For one query the logarithms have the same order, so nothing is exponentiated. With a window of
 * queries, the rows of past queries are kept and only the newest is computed. */
#include "chooser.h"

#include <math.h>
#include <string.h>

#include "attention/context_split.h"
#include "attention/parts.h"
#include "attention/rank_choice.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "bank/store_areas.h"
#include "base/err.h"
#include "base/ints.h"

/* What a layer chose for one token */
struct chosen {
    int n;         /* slots; -1 = all */
    int32_t *slot; /* [n_ctx] ascending */
};

/* State of one choosing layer. */
struct choice {
    int from;   /* the first token that the layer's attention window still sees */
    int n_cand; /* tokens before the tail */
    int cand;   /* candidates before the window of queries: from..cand-1 are scored */
    struct chosen of[CHOICES]; /* of tokens that are decoded together; [0]: of one alone */
    float *q;     /* [window][n_head * hd], position modulo window; NULL when the window is 1 */
    float *row;   /* [window][n_ctx] scores of each of these queries */
    int *row_pos; /* [window] position of each row's query; -1 = none */
    int row_from, row_cand; /* range of candidates in the rows */
    int left;               /* 1: attention has left the logits of the token being decoded */
};

struct chooser {
    struct choice *of; /* [n_layer] */
    float *logit;      /* [n_head][n_ctx] */
    float *score;      /* [n_ctx] */
    float *lse;        /* [n_head] */
    struct kv_run *run;
    struct kv_run *ahead; /* [n_layer][n_kv]; NULL: the device does not ask for it */
};

static struct choice *choice_of(const struct attention *a, int l)
{
    const struct chooser *se = cb_reader_state(a, l);
    return &se->of[l];
}

/* ---- open ---- */

static int window_of(const struct attention *a, int l)
{
    return a->plan[l].choice.window > 1 ? a->plan[l].choice.window : 1;
}

static int open_window(struct attention *a, struct chooser *se, struct choice *c, int w)
{
    const size_t row = cb_attention_row(a);

    c->q = cb_state_alloc(se, (size_t)w * row, sizeof *c->q);
    c->row = cb_state_alloc(se, (size_t)w * (size_t)a->bank->n_ctx, sizeof *c->row);
    c->row_pos = cb_state_calloc(se, (size_t)w, sizeof *c->row_pos);
    return cb_state_status(se);
}

static int open_slots(const struct attention *a, struct chooser *se, struct choice *c)
{
    const size_t n_ctx = (size_t)a->bank->n_ctx;
    int32_t *all = cb_state_alloc(se, CHOICES * n_ctx, sizeof *all);

    for (int i = 0; all && i < CHOICES; i++)
        c->of[i].slot = all + (size_t)i * n_ctx;
    return all ? CB_OK : CB_ENOMEM;
}

static void forget(struct choice *c)
{
    for (int i = 0; i < CHOICES; i++)
        c->of[i].n = -1;
    c->row_cand = -1;
}

static void clear(struct attention *a, void *state)
{
    struct chooser *se = state;

    for (int l = 0; l < a->model->hp.n_layer; l++) {
        struct choice *c = &se->of[l];
        c->n_cand = 0;
        forget(c);
        for (int r = 0; c->row_pos && r < window_of(a, l); r++)
            c->row_pos[r] = -1;
    }
}

static int open(struct attention *a, void *state)
{
    const struct hparams *hp = &a->model->hp;
    struct chooser *se = state;

    /* memory for these is committed page by page as the context grows */
    se->of = cb_state_calloc(se, (size_t)hp->n_layer, sizeof *se->of);
    se->logit = cb_state_alloc(se, (size_t)hp->n_head * (size_t)a->bank->n_ctx, sizeof *se->logit);
    se->score = cb_state_alloc(se, (size_t)a->bank->n_ctx, sizeof *se->score);
    se->lse = cb_state_calloc(se, (size_t)hp->n_head, sizeof *se->lse);
    se->run = cb_state_calloc(se, (size_t)hp->n_kv, sizeof *se->run);
    if (!se->lse || !se->of || !se->logit || !se->score || !se->run)
        return CB_ENOMEM;
    if (a->dev->ops->memory && a->dev->ops->memory->ahead &&
        !(se->ahead =
              cb_state_calloc(se, (size_t)hp->n_layer * (size_t)hp->n_kv, sizeof *se->ahead)))
        return CB_ENOMEM;
    for (int l = 0; l < hp->n_layer; l++) {
        if (cb_reader_state(a, l) != state)
            continue;
        TRY(open_slots(a, se, &se->of[l]));
        if (window_of(a, l) > 1)
            TRY(open_window(a, se, &se->of[l], window_of(a, l)));
    }
    clear(a, se);
    return CB_OK;
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const size_t nh = (size_t)a->model->hp.n_head, n = (size_t)n_most;
    const struct chooser *se = state;
    size_t floats = (nh + 1) * n;

    (void)n_feed;
    for (int l = 0; l < a->model->hp.n_layer; l++) {
        const size_t w = se->of[l].q ? (size_t)window_of(a, l) : 0;
        floats += se->of[l].of->slot
                      ? (size_t)a->max_draft * n + w * (nh * (size_t)a->model->hp.hd + n)
                      : 0;
    }
    return floats * sizeof(float);
}

/* ---- the state as plain data ---- */

enum { N_COUNTS = 6 }; /* and the position of each row's query */

static int counts(const struct attention *a, int l, int32_t *out)
{
    const struct choice *c = choice_of(a, l);
    const int32_t own[N_COUNTS] = {
        c->from, c->n_cand, c->cand, c->of->n, c->row_from, c->row_cand
    };
    const int n_row = c->row_pos ? window_of(a, l) : 0;

    if (out)
        memcpy(out, own, sizeof own);
    for (int r = 0; out && r < n_row; r++)
        out[N_COUNTS + r] = c->row_pos[r];
    return N_COUNTS + n_row;
}

static int set_counts(struct attention *a, int l, const int32_t *in)
{
    struct choice *c = choice_of(a, l);
    const int n_in = counts(a, l, NULL), n = min_int(a->bank->n_seen, a->bank->n_ctx);

    for (int i = 0; i < n_in; i++)
        if (in[i] < -1 || in[i] > (i < N_COUNTS ? n : a->bank->n_seen - 1))
            return cb_fail(CB_EFORMAT, "its choice of slots is damaged");
    c->from = in[0];
    c->n_cand = in[1];
    c->cand = in[2];
    c->of->n = in[3];
    c->row_from = in[4];
    c->row_cand = in[5];
    if (c->from < 0 || c->n_cand < 0 || c->cand < 0 || c->row_from < 0)
        return cb_fail(CB_EFORMAT, "its choice of slots is damaged");
    for (int i = N_COUNTS; i < n_in; i++)
        c->row_pos[i - N_COUNTS] = in[i];
    return CB_OK;
}

static int areas(const struct attention *a, int l, struct area *out)
{
    const struct choice *c = choice_of(a, l);
    const size_t row = cb_attention_row(a);
    int n = 0;

    if (!out)
        return 1 + 2 * counts(a, l, NULL);
    if (c->of->n > 0)
        out[n++] = (struct area){
            AREA_CHOICE_SLOTS, l, 0, 0, c->of->slot, (size_t)c->of->n * sizeof *c->of->slot
        };
    for (int r = 0; c->row_pos && r < min_int(window_of(a, l), a->bank->n_seen); r++) {
        const size_t at = (size_t)r * (size_t)a->bank->n_ctx + (size_t)c->row_from;
        out[n++] =
            (struct area){ AREA_CHOICE_QUERY, l, r, 0, c->q + (size_t)r * row, row * sizeof *c->q };
        if (c->row_pos[r] >= 0 && c->row_cand > c->row_from)
            out[n++] = (struct area){ AREA_CHOICE_SCORES,
                                      l,
                                      r,
                                      0,
                                      c->row + at,
                                      (size_t)(c->row_cand - c->row_from) * sizeof *c->row };
    }
    return n;
}

static int check(const struct attention *a, int l)
{
    const struct chosen *x = choice_of(a, l)->of;

    for (int i = 0; i < x->n; i++)
        if (x->slot[i] <= (i ? x->slot[i - 1] : -1) || x->slot[i] >= a->bank->n_seen)
            return cb_fail(CB_EFORMAT, "its choice of slots is damaged");
    return CB_OK;
}

static void cut(struct attention *a, void *state, int n)
{
    struct chooser *se = state;

    for (int l = 0; l < a->model->hp.n_layer; l++) {
        struct choice *c = &se->of[l];
        c->n_cand = c->n_cand > n ? 0 : c->n_cand;
        forget(c);
    }
}

/* A window of queries cannot be restored. */
static const char *uncut_window(const struct attention *a, const void *state, int n)
{
    (void)a, (void)state, (void)n;
    return "it has scored later tokens";
}

/* ---- candidates ---- */

int cb_chooser_k(const struct choice_plan *r, int n)
{
    const int k = r->share > 0 ? (int)(r->share * n) : r->k;
    return max_int(k, 1);
}

int cb_chooser_tail(const struct choice_plan *r, int n, int n_prompt)
{
    const int left = max_int(1, min_int(r->tail_left, r->tail)), tail = n - n_prompt;

    return tail > r->tail ? left + (tail - r->tail - 1) % max_int(1, r->tail + 1 - left) : tail;
}

/* Where attention leaves the logits of the token being decoded, [n_head][n_ctx]; NULL: everything
 * will be read anyway. */
static float *logits(struct attention *a, const struct chunk *of)
{
    const int l = of->l, n = cb_context_split_len(a, of), window = cb_attention_window(a, l);
    const struct chooser *se = cb_reader_state(a, l);
    struct choice *c = &se->of[l];

    c->n_cand = n - cb_chooser_tail(&a->plan[l].choice, n, a->bank->prompt_end);
    c->from = window ? max_int(0, n - window) : 0;
    /* candidates within the window of queries are always read */
    c->cand = max_int(c->from, min_int(c->n_cand, max_int(0, n - window_of(a, l))));
    c->of[a->draft_index].n = -1;
    return cb_chooser_k(&a->plan[l].choice, c->n_cand - c->from) < c->n_cand - c->from ? se->logit
                                                                                       : NULL;
}

/* Keeps the last queries of a chunk for layer l's window of queries. q[n]: `stride` floats from one
 * token to the next, positions pos0.., or pos[n] on one of several ranks, each of which has some */
static void keep_queries(struct attention *a, int l, const float *q, int stride, int n, int pos0,
                         const int *pos)
{
    const size_t row = cb_attention_row(a);
    const int w = window_of(a, l);
    struct choice *c = choice_of(a, l);

    for (int i = max_int(0, n - w); c->q && i < n; i++) {
        const int at = (pos ? pos[i] : pos0 + i) % w;
        cb_device_copy(a->dev, c->q + (size_t)at * row, q + (size_t)i * (size_t)stride,
                       row * sizeof *q);
        c->row_pos[at] = -1;
    }
}

/* ---- scores ---- */

/* This rank's slots end here, of those that the layer chooses from; and their number */
static int end_own(const struct attention *a, int l)
{
    return cb_context_split_own(a, l, choice_of(a, l)->cand);
}

static int n_own(const struct attention *a, int l)
{
    return end_own(a, l) - choice_of(a, l)->from;
}

/* The logits that attention has left become logarithms of softmax weights over the candidates of
 * all ranks. */
static int norm_over_ranks(struct attention *a, int l)
{
    const struct chooser *se = cb_reader_state(a, l);
    const int n_head = a->model->hp.n_head, n = n_own(a, l);

    a->dev->ops->head_lse(a->dev, se->logit, a->bank->n_ctx, n_head, n, se->lse);
    TRY(cb_rank_choice_join(cb_context_split_choice(a), se->lse, n_head));
    for (int h = 0; h < n_head; h++) {
        float *x = se->logit + (size_t)h * (size_t)a->bank->n_ctx;
        for (int j = 0; j < n; j++)
            x[j] -= se->lse[h];
    }
    return CB_OK;
}

/* Scores of one query -> out[from..]: the largest logit of any head, or the logarithm of the
 * largest softmax weight. */
static int score_row(struct attention *a, int l, float *out)
{
    const struct chooser *se = cb_reader_state(a, l);
    const struct choice *c = choice_of(a, l);
    const int normed = !a->plan[l].choice.logits, dealt = cb_context_split_deals(a, l);

    if (normed && dealt)
        TRY(norm_over_ranks(a, l));
    a->dev->ops->best_head(a->dev, se->logit + c->from, a->bank->n_ctx, a->model->hp.n_head,
                           n_own(a, l), normed && !dealt, out + c->from);
    return CB_OK;
}

/* ---- a window of queries ---- */

/* Logits of the kept query at position pos, which may come before some candidates. */
static void past_logits(struct attention *a, int l, int pos)
{
    const struct chooser *se = cb_reader_state(a, l);
    const struct choice *c = choice_of(a, l);
    struct score sc = { .a = cb_parts_attn(a, l),
                        .logit = 1,
                        .out = se->logit + c->from,
                        .out_stride = a->bank->n_ctx };

    sc.a.n_tok = 1;
    sc.a.causal = sc.a.window = 0;
    sc.a.run = se->run;
    sc.a.q = c->q + (size_t)(pos % window_of(a, l)) * cb_attention_row(a);
    for (int h = 0; h < sc.a.n_kv; h++)
        se->run[h] = cb_store_run(&a->bank->store[l], h, c->from, end_own(a, l));
    for (int h = 0; h < sc.a.n_head; h++)
        memset(sc.out + (size_t)h * (size_t)a->bank->n_ctx, 0, (size_t)n_own(a, l) * sizeof(float));
    a->dev->ops->score(a->dev, &sc);
}

static void exp_row(const struct attention *a, int l, float *row)
{
    const int end = end_own(a, l);

    for (int j = choice_of(a, l)->from; !a->plan[l].choice.logits && j < end; j++)
        row[j] = expf(row[j]);
}

/* Computes missing rows of scores for the queries of the window, of which the last one is at n - 1;
 * the weighted sum of all rows -> score. */
static int score_window(struct attention *a, int l, int n)
{
    const struct chooser *se = cb_reader_state(a, l);
    struct choice *c = choice_of(a, l);
    const int w = window_of(a, l), end = end_own(a, l);
    const float decay = a->plan[l].choice.decay > 0 ? a->plan[l].choice.decay : 1;
    float weight = 1;

    for (int pos = n - 1; pos >= max_int(0, n - w); pos--, weight *= decay) {
        const int at = pos % w;
        float *row = c->row + (size_t)at * (size_t)a->bank->n_ctx;
        if (c->row_pos[at] != pos || c->row_cand != c->cand || c->row_from != c->from) {
            if (pos < n - 1)
                past_logits(a, l, pos);
            TRY(score_row(a, l, row));
            exp_row(a, l, row);
            c->row_pos[at] = pos;
        }
        for (int j = c->from; j < end; j++)
            se->score[j] = (pos < n - 1 ? se->score[j] : 0) + weight * row[j];
    }
    c->row_cand = c->cand;
    c->row_from = c->from;
    return CB_OK;
}

/* The k best of the candidates of all ranks -> those that this rank has, slot[]; their number */
static int best_over_ranks(struct attention *a, int l, int k, int32_t *slot)
{
    struct rank_choice *choice = cb_context_split_choice(a);
    const struct chooser *se = cb_reader_state(a, l);
    const int n = n_own(a, l), most = cb_context_split_most_own(a, l, 0, choice_of(a, l)->cand);
    const int32_t *pos;
    int found = min_int(k, n);

    TRY(cb_rank_choice_begin(choice, 1, min_int(k, most)));
    a->dev->ops->topk(a->dev, se->score, n, found, slot);
    for (int j = 0; j < found; j++)
        cb_rank_choice_add(choice, 0, se->score[slot[j]],
                           cb_store_pos(&a->bank->store[l], 0, slot[j]));
    TRY(cb_rank_choice_end(choice, a->dev, &k));
    pos = cb_rank_choice_of(choice, 0, &found);
    for (int j = 0; j < found; j++)
        slot[j] = cb_context_split_own(a, l, pos[j]);
    return found;
}

/* The k best candidates -> slot[]; how many of them this rank has */
static int best(struct attention *a, int l, int k, int32_t *slot)
{
    const struct chooser *se = cb_reader_state(a, l);
    const struct choice *c = choice_of(a, l);

    if (cb_context_split_deals(a, l))
        return best_over_ranks(a, l, k, slot);
    a->dev->ops->topk(a->dev, se->score + c->from, c->cand - c->from, k, slot);
    for (int j = 0; c->from && j < k; j++)
        slot[j] += c->from;
    return k;
}

/* May the device choose by itself, from logits that stay there? What one query leaves, in rows that
 * it attends with */
static int device_may_choose(const struct attention *a, int l)
{
    const struct choice *c = choice_of(a, l);

    return a->dev->ops->head_topk && window_of(a, l) == 1 && !cb_context_split_deals(a, l) &&
           !a->bank->store[l].kivi && !a->cold_pages && c->cand - c->from > 1;
}

static int device_chooses(struct attention *a, int l, int k, int32_t *slot)
{
    const struct chooser *se = cb_reader_state(a, l);
    const struct choice *c = choice_of(a, l);
    const struct head_topk t = { .logit = se->logit + c->from,
                                 .n_head = a->model->hp.n_head,
                                 .stride = a->bank->n_ctx,
                                 .n = c->cand - c->from,
                                 .normed = !a->plan[l].choice.logits,
                                 .lo = c->from,
                                 .k = k,
                                 .idx = slot,
                                 .after = a->bank->store[l].n[0] - c->cand };

    return device_may_choose(a, l) && a->dev->ops->head_topk(a->dev, &t);
}

static int choose(struct attention *a, const struct chunk *of)
{
    const int l = of->l, n_all = cb_context_split_len(a, of), n = a->bank->store[l].n[0];
    const struct chooser *se = cb_reader_state(a, l);
    struct choice *c = choice_of(a, l);
    struct chosen *x = &c->of[a->draft_index];
    const int want = cb_chooser_k(&a->plan[l].choice, c->n_cand - c->from) - (c->n_cand - c->cand);
    const int k = min_int(c->cand - c->from, max_int(1, want));
    int found = k;

    keep_queries(a, l, of->q, 0, 1, n_all - 1, NULL);
    if (!device_chooses(a, l, k, x->slot)) {
        TRY(window_of(a, l) > 1 ? score_window(a, l, n_all) : score_row(a, l, se->score));
        found = best(a, l, k, x->slot);
        TRY(found);
    }
    x->n = found;
    for (int j = cb_context_split_own(a, l, c->cand); j < n; j++)
        x->slot[x->n++] = j;
    if (x->n == n)
        x->n = -1;
    return CB_OK;
}

static int parts(struct attention *a, const struct chunk *c)
{
    float *logit = a->bank->decoding ? logits(a, c) : NULL;

    choice_of(a, c->l)->left = logit != NULL;
    TRY(cb_parts_whole(a, c, logit));
    a->parts->part[cb_parts_n(a) - 1].logit_later = logit && device_may_choose(a, c->l);
    return 1;
}

static int attended(struct attention *a, const struct chunk *c, const float *lse)
{
    (void)lse;
    if (a->bank->decoding && choice_of(a, c->l)->left)
        return choose(a, c);
    keep_queries(a, c->l, c->q, c->stride, c->n, c->pos0,
                 cb_context_split_works(a) ? c->pos : NULL);
    return CB_OK;
}

static int settle_window(struct attention *a, int l)
{
    return cb_context_split_last_of(a, choice_of(a, l)->q, cb_attention_row(a), window_of(a, l));
}

const int32_t *cb_chooser_slots(const struct attention *a, int l, int *n)
{
    const struct chosen *x = &choice_of(a, l)->of[a->draft_index];
    *n = x->n;
    return x->n < 0 ? NULL : x->slot;
}

/* Tells the device which slots later layers will read of what layer l chose. These layers have not
 * stored the current token yet. */
static void ahead(struct attention *a, int l)
{
    const struct chooser *se = cb_reader_state(a, l);
    const int n_kv = a->bank->n_kv, window = cb_attention_window(a, l);
    int n_run = 0, n;
    const int32_t *slot = cb_chooser_slots(a, l, &n);

    if (!se->ahead || !slot)
        return;
    for (int m = l + 1; m < a->model->hp.n_layer; m++) {
        const struct store *st = &a->bank->store[m];
        if (a->plan[m].reads != l || cb_attention_window(a, m) != window)
            continue;
        for (int h = 0; h < n_kv; h++) {
            struct kv_run *run = &se->ahead[n_run++];
            *run = cb_store_run(st, h, 0, st->n[h]);
            run->idx = slot;
            run->n = n;
            while (run->n && slot[run->n - 1] >= st->n[h])
                run->n--;
        }
    }
    if (n_run)
        a->dev->ops->memory->ahead(a->dev, se->ahead, n_run);
}

/* ---- over ranks, for the plan ---- */

/* As if no token of the tail had become a candidate, and the rows of a window's past queries were
 * there */
static uint64_t choice_bytes(const struct attention *a, int l, int n, int *messages)
{
    const struct choice_plan *r = &a->plan[l].choice;
    const int k = min_int(cb_chooser_k(r, n), cb_context_split_most_own(a, l, 0, n));

    *messages = cb_chooser_k(r, n) >= n ? 0 : r->logits ? 1 : 2;
    return *messages ? cb_rank_choice_sends(1, k) +
                           (r->logits ? 0 : sizeof(float)) * (uint64_t)a->model->hp.n_head
                     : 0;
}

/* ---- the tables ---- */

/* What layers that choose by one query and by a window of them have in common */
#define CHOOSER_HOOKS                                                                              \
    .state = sizeof(struct chooser), .max_step = CHOICES, .open = open, .clear = clear,            \
    .work_bytes = work_bytes, .cut = cut, .parts = parts, .attended = attended, .ahead = ahead,    \
    .counts = counts, .set_counts = set_counts, .areas = areas, .check = check

static int claims(const struct claim *c)
{
    return cb_plan_chooses(c->row) && c->row->choice.window <= 1;
}

const struct reader cb_reader_chooser = {
    .name = "everything, to choose for other layers",
    .traits = READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_STEP | READ_PREPACKS | READ_SHARES,
    .claims = claims,
    .deals_by = cb_chooser_deals_by,
    .choice_bytes = choice_bytes,
    CHOOSER_HOOKS,
};

/* Several queries choose together. Their window reads the keys once more, so these are not
 * prepacked. */
static int claims_window(const struct claim *c)
{
    return cb_plan_chooses(c->row) && c->row->choice.window > 1;
}

const struct reader cb_reader_window_chooser = {
    .name = "everything, to choose for other layers by a window of queries",
    .traits = READ_DENSE | READ_PROMPT | READ_STEP,
    .deals_by = cb_chooser_deals_by,
    .choice_bytes = choice_bytes,
    .settle = settle_window,
    .undraftable = "it keeps a window of queries",
    .claims = claims_window,
    .uncut = uncut_window,
    CHOOSER_HOOKS,
};
