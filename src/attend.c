/* SPDX-License-Identifier: MIT */
/* attend.c - one layer's step of the cache: store the new keys and values, turn the plan row into
 * what is read, attend, and let the policy look, choose and compact. */
#include "attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "distant.h"
#include "edit.h"
#include "err.h"
#include "measure.h"
#include "prefill.h"
#include "select.h"
#include "similar.h"
#include "store_kivi.h"

/* Slots that a layer chose for itself. */
struct choice {
    int32_t *slot; /* [n_kv][n_ctx], ascending */
    int *n;        /* [n_kv] */
};

struct attend {
    struct kv_run *run;    /* [n_kv] */
    struct choice *choice; /* [n_layer]; slot NULL where the plan needs none */
    float *lse;            /* [chunk][n_head] */
    float *rank;           /* [n_kv][n_ctx] scores of units */
    int32_t *unit;         /* [n_ctx] */
    void **state;          /* [n_layer] the method's own */
    struct edit *edit;
    float *q, *out;       /* [chunk][n_head * hd] the part of the first tokens, with POS_SLOT */
    float *lse2;          /* [chunk][n_head] */
    float *turn;          /* [n_rot / 2][2] cos, sin */
    struct scores scores; /* of the layer that was attended to last */
    int has_scores;
};

/* ---- open ---- */

static int chooses(const struct read *r)
{
    return r->what == READ_ENDS || r->what == READ_TOP;
}

static int choice_open(struct cb_session *s, struct choice *c)
{
    const size_t n_kv = (size_t)s->model->hp.n_kv;
    c->slot = cb_alloc_aligned(n_kv * (size_t)s->n_ctx, sizeof *c->slot);
    c->n = cb_calloc(n_kv, sizeof *c->n);
    return c->slot && c->n ? CB_OK : CB_ENOMEM;
}

static int open_layers(struct cb_session *s, struct attend *a)
{
    const size_t n_layer = (size_t)s->model->hp.n_layer, bytes = s->policy->m->layer_bytes;
    int any = 0;

    a->choice = cb_calloc(n_layer, sizeof *a->choice);
    a->state = cb_calloc(n_layer, sizeof *a->state);
    if (!a->choice || !a->state)
        return CB_ENOMEM;
    for (size_t l = 0; l < n_layer; l++) {
        if (bytes && !(a->state[l] = cb_calloc(1, bytes)))
            return CB_ENOMEM;
        if (!chooses(&s->plan[l].read))
            continue;
        any = 1;
        TRY(choice_open(s, &a->choice[l]));
    }
    if (!any)
        return CB_OK;
    a->rank = cb_alloc_aligned((size_t)s->model->hp.n_kv * (size_t)s->n_ctx, sizeof *a->rank);
    a->unit = cb_alloc_aligned((size_t)s->n_ctx, sizeof *a->unit);
    return a->rank && a->unit ? CB_OK : CB_ENOMEM;
}

/* Work space of rolled(); nothing where no layer rolls its positions. */
static int open_rolled(struct cb_session *s, struct attend *a)
{
    const struct hparams *hp = &s->model->hp;
    const size_t n = (size_t)s->chunk * (size_t)hp->n_head;
    int any = 0;

    for (int l = 0; l < hp->n_layer; l++)
        any |= s->plan[l].pos == POS_SLOT;
    if (!any)
        return CB_OK;
    a->q = cb_alloc_aligned(n * (size_t)hp->hd, sizeof *a->q);
    a->out = cb_alloc_aligned(n * (size_t)hp->hd, sizeof *a->out);
    a->lse2 = cb_alloc_aligned(n, sizeof *a->lse2);
    a->turn = cb_alloc_aligned((size_t)hp->n_rot, sizeof *a->turn);
    return a->q && a->out && a->lse2 && a->turn ? CB_OK : CB_ENOMEM;
}

/* Is layer l read whole for every token, by attention alone? */
static int reads_whole(const struct cb_session *s, int l)
{
    const struct method *m = s->policy->m;
    const struct layer_plan *p = &s->plan[l];

    if (m->fold || m->rank || m->observe || m->compact || s->distant || cb_prefill_is(s))
        return 0;
    return p->read.what == READ_ALL && p->pos == POS_TOKEN && p->kv_of == l && !p->raw_keys &&
           p->want.when == WHEN_NEVER && p->want.window <= 1;
}

int cb_attend_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    struct attend *a = s->attend = cb_calloc(1, sizeof *a);

    if (!a)
        return CB_ENOMEM;
    a->run = cb_calloc((size_t)hp->n_kv, sizeof *a->run);
    a->lse = cb_alloc_aligned((size_t)s->chunk * (size_t)hp->n_head, sizeof *a->lse);
    if (!a->run || !a->lse)
        return CB_ENOMEM;
    TRY(open_layers(s, a));
    TRY(open_rolled(s, a));
    TRY(cb_measure_open(s));
    TRY(cb_select_open(s));
    TRY(cb_distant_open(s));
    for (int l = 0; l < hp->n_layer; l++)
        if (reads_whole(s, l))
            cb_store_may_seal(&s->store[l], s->dev);
    if (!s->policy->m->compact)
        return CB_OK;
    TRY(cb_similar_open(s));
    return cb_edit_new(s, &a->edit);
}

void cb_attend_close(struct cb_session *s)
{
    struct attend *a = s->attend;

    cb_measure_close(s);
    cb_select_close(s);
    cb_distant_close(s);
    cb_similar_close(s);
    if (!a)
        return;
    for (int l = 0; l < s->model->hp.n_layer; l++) {
        if (a->choice)
            free(a->choice[l].slot);
        if (a->choice)
            free(a->choice[l].n);
        if (a->state)
            free(a->state[l]);
    }
    cb_edit_free(a->edit);
    free(a->run);
    free(a->choice);
    free(a->state);
    free(a->lse);
    free(a->q);
    free(a->out);
    free(a->lse2);
    free(a->turn);
    free(a->rank);
    free(a->unit);
    free(a);
}

/* Of attend.c alone: parts of rolled positions, choices, the policy's state. */
static size_t own_bytes(const struct cb_session *s, size_t n_most)
{
    const struct attend *a = s->attend;
    const struct hparams *hp = &s->model->hp;
    const size_t n = (size_t)s->chunk * (size_t)hp->n_head, n_kv = (size_t)hp->n_kv;
    size_t words = n + (a->q ? n * (2 * (size_t)hp->hd + 1) + (size_t)hp->n_rot : 0);

    for (int l = 0; l < hp->n_layer; l++)
        words += a->choice[l].slot ? n_kv * n_most : 0;
    words += a->rank ? (n_kv + 1) * n_most : 0;
    return words * sizeof(float) + s->policy->state_bytes +
           s->policy->m->layer_bytes * (size_t)hp->n_layer;
}

size_t cb_attend_bytes(const struct cb_session *s, int n_feed, int n_most, int n_kept)
{
    return own_bytes(s, (size_t)n_most) + cb_measure_bytes(s, n_most) + cb_select_bytes(s, n_most) +
           cb_distant_bytes(s, n_feed, n_most) + cb_similar_bytes(s, n_most, n_kept) +
           (s->attend->edit ? cb_edit_bytes(s, n_most) : 0);
}

int cb_attend_window(const struct cb_session *s, int l)
{
    const int own = s->model->hp.window, asked = s->plan[l].window;
    return own && asked ? (own < asked ? own : asked) : own + asked;
}

void cb_attend_clear(struct cb_session *s)
{
    memcpy(s->plan, s->plan_opened, (size_t)s->model->hp.n_layer * sizeof *s->plan);
    if (s->policy->state)
        memset(s->policy->state, 0, s->policy->state_bytes);
    for (int l = 0; l < s->model->hp.n_layer; l++)
        if (s->policy->m->layer_bytes)
            memset(s->attend->state[l], 0, s->policy->m->layer_bytes);
    cb_select_clear(s);
}

/* ---- choosing what to read ---- */

/* Units -> slots of one KV head: sinks, the chosen units among the candidates, the recent ones. */
static int expand(const struct read *r, int n, int n_cand, const int32_t *unit, int n_unit,
                  int32_t *out)
{
    int m = 0, next = 0; /* slots below next are in */

    for (; next < r->sink && next < n; next++)
        out[m++] = next;
    for (int i = 0; i < n_unit; i++) {
        const int to = (unit[i] + 1) * r->unit < n_cand ? (unit[i] + 1) * r->unit : n_cand;
        next = unit[i] * r->unit > next ? unit[i] * r->unit : next;
        for (; next < to; next++)
            out[m++] = next;
    }
    if (n_cand < n - r->recent)
        n_cand = r->tail ? n_cand : n - r->recent;
    else if (r->recent)
        n_cand = n - r->recent;
    for (next = n_cand > next ? n_cand : next; next < n; next++)
        out[m++] = next;
    return m;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* The k best units of one KV head by rank -> its choice. The current token is always read. */
static void choose_units(struct cb_session *s, int l, int kv, const float *rank)
{
    const struct read *r = &s->plan[l].read;
    struct choice *c = &s->attend->choice[l];
    const int n = s->store[l].n[kv], n_cand = r->tail ? min_int(s->ctx_end, n) : n;
    const int n_unit = (n_cand + r->unit - 1) / r->unit, k = min_int(r->k, n_unit);
    struct read last = *r;

    if (!r->tail && !r->recent)
        last.recent = 1;
    s->dev->ops->topk(s->dev, rank, n_unit, k, s->attend->unit);
    c->n[kv] =
        expand(&last, n, n_cand, s->attend->unit, k, c->slot + (size_t)kv * (size_t)s->n_ctx);
}

static int choose_by_rank(struct cb_session *s, int l, const float *q)
{
    TRY(s->policy->m->rank(s->policy, l, s->attend->state[l], q, s->attend->rank));
    for (int h = 0; h < s->model->hp.n_kv; h++) {
        const int n = s->store[l].n[h], unit = s->plan[l].read.unit;
        choose_units(s, l, h, s->attend->rank + (size_t)h * (size_t)((n + unit - 1) / unit));
    }
    return CB_OK;
}

static int choose_ends(struct cb_session *s, int l)
{
    const struct read *r = &s->plan[l].read;
    struct choice *c = &s->attend->choice[l];

    for (int h = 0; h < s->model->hp.n_kv; h++)
        c->n[h] = cb_keep_ends(s->store[l].n[h], r->sink, r->recent,
                               c->slot + (size_t)h * (size_t)s->n_ctx);
    return CB_OK;
}

/* ---- reading ---- */

static void read_all(struct cb_session *s, int l)
{
    for (int h = 0; h < s->model->hp.n_kv; h++)
        s->attend->run[h] = cb_store_run(&s->store[l], h, 0, s->store[l].n[h]);
}

/* A layer that chooses for others leaves its logits behind, and so does one whose policy looks at the
 * token's mass. */
static void leave_logits(struct cb_session *s, int l)
{
    const int group = s->model->hp.n_head / s->model->hp.n_kv;
    float *logit = NULL;

    if (cb_selects(&s->plan[l].read))
        logit = cb_select_logits(s, l);
    else if (s->plan[l].read.what == READ_ALL && cb_wants(&s->plan[l].want, 0))
        logit = cb_measure_logits(s, l);
    for (int h = 0; logit && h < s->model->hp.n_kv; h++)
        s->attend->run[h].logit = logit + (size_t)(h * group) * (size_t)s->n_ctx;
}

/* What layer `as` chose, for all KV heads. */
static void read_as(struct cb_session *s, int as)
{
    int n;
    const int32_t *slot = cb_select_slots(s, as, &n);

    for (int h = 0; slot && h < s->model->hp.n_kv; h++) {
        s->attend->run[h].idx = slot;
        s->attend->run[h].n = n;
    }
}

/* What layer l reads of each KV head -> run[n_kv]. */
static int set_runs(struct cb_session *s, int l, const float *q)
{
    const struct read *r = &s->plan[l].read;
    struct attend *a = s->attend;

    read_all(s, l);
    if (s->decoding)
        leave_logits(s, l);
    if (s->decoding && r->what == READ_AS)
        read_as(s, r->as);
    if (!s->decoding || r->what == READ_ALL || r->what == READ_AS)
        return CB_OK;
    if (r->what == READ_TOP)
        TRY(choose_by_rank(s, l, q));
    if (r->what == READ_ENDS)
        TRY(choose_ends(s, l));
    for (int h = 0; h < s->model->hp.n_kv; h++) {
        const struct choice *c = &a->choice[l];
        if (c->n[h] == a->run[h].n) /* all of them: the same path as full attention */
            continue;
        a->run[h].idx = c->slot + (size_t)h * (size_t)s->n_ctx;
        a->run[h].n = c->n[h];
    }
    return CB_OK;
}

static void count_read(struct cb_session *s, int l)
{
    const struct store *st = &s->store[l];
    for (int h = 0; h < s->model->hp.n_kv; h++)
        s->kv_read_bytes += cb_store_run_bytes(st, &s->attend->run[h]);
}

/* The policy's look at one decoded token. */
static int step_scores(struct cb_session *s, int l, const struct attn *at)
{
    struct attend *a = s->attend;

    cb_measure_step(s, l, at, &a->scores);
    a->has_scores = 1;
    for (int h = 0; !at->run[0].logit && h < s->model->hp.n_kv; h++) /* keys were read once more */
        s->kv_read_bytes += cb_store_bytes_of(&s->store[l], s->store[l].n[h]) / 2;
    return CB_OK;
}

/* ---- positions as if nothing had been dropped ---- */

/* Slots [0, *first) hold positions 0.., those after them a run of neighbours. How far the second run
 * is from where it would be if it followed the first. */
static int gap(const struct store *st, int *first)
{
    const int n = st->n[0], shift = cb_store_pos(st, 0, n - 1) - (n - 1);
    int lo = 0, hi = n - 1;

    while (lo < hi) { /* the first slot that is behind the gap */
        const int mid = (lo + hi) / 2;
        if (cb_store_pos(st, 0, mid) > mid)
            hi = mid;
        else
            lo = mid + 1;
    }
    *first = lo;
    return shift;
}

/* Rotated logits depend on differences of positions alone: the queries see the second run as they
 * are, and the first one turned back by the gap. Two parts, joined. */
static void rolled(struct cb_session *s, int l, const struct attn *all, int first, int shift)
{
    const struct hparams *hp = &s->model->hp;
    const struct ops *op = s->dev->ops;
    struct attend *a = s->attend;
    const struct store *st = &s->store[l];
    const size_t row = (size_t)hp->n_head * (size_t)hp->hd;
    struct attn at = *all;

    for (int h = 0; h < hp->n_kv; h++)
        a->run[h] = cb_store_run(st, h, first, st->n[h]);
    at.lse = a->lse;
    op->attention(s->dev, &at);
    for (int i = 0; i < at.n_tok; i++)
        memcpy(a->q + (size_t)i * row, at.q + (size_t)i * (size_t)at.q_stride, row * sizeof *a->q);
    cb_model_rope_table(s->model, -shift, 1, a->turn);
    op->rope(s->dev, s->model->arch->rope, a->q, 1, at.n_tok * hp->n_head, hp->hd, 0, hp->n_rot,
             a->turn);
    for (int h = 0; h < hp->n_kv; h++)
        a->run[h] = cb_store_run(st, h, 0, first);
    at.causal = 0;
    at.q = a->q;
    at.q_stride = (int)row;
    at.out = a->out;
    at.lse = a->lse2;
    op->attention(s->dev, &at);
    op->join(s->dev, all->out, a->lse, a->out, a->lse2, at.n_tok * hp->n_head, hp->hd);
    for (int h = 0; h < hp->n_kv; h++) /* for the count of what was read */
        a->run[h].n = st->n[h];
}

static void attention(struct cb_session *s, int l, const struct attn *at)
{
    int first = 0;
    const int shift = s->plan[l].pos == POS_SLOT ? gap(&s->store[l], &first) : 0;

    if (shift)
        rolled(s, l, at, first, shift);
    else
        s->dev->ops->attention(s->dev, at);
}

/* The layer has attended: to a token, which chooses, or to queries that may count later. */
static void choose_for_others(struct cb_session *s, int l, const struct attn *at, int pos0)
{
    if (s->attend->run[0].logit)
        cb_select_step(s, l, at->q);
    else
        cb_select_chunk(s, l, at->q, at->q_stride, at->n_tok, pos0);
}

/* What the session that leads s has stored and attended to is s's as well, as far as it goes. */
static int follow(struct cb_session *s, int l, const struct attn *led, int pos0)
{
    const struct method *m = s->policy->m;
    const float *k = led->q + led->n_head * led->hd, *v = k + led->n_kv * led->hd;
    const int was = s->store[l].n[0], end = s->n_seen + s->n_feed;
    struct attn at = *led;

    s->attend->has_scores = 0;
    at.n_tok = min_int(led->n_tok, end - pos0);
    if (at.n_tok < 1)
        return CB_OK;
    for (int h = 0; h < at.n_kv; h++) {
        s->attend->run[h] = led->run[h];
        s->attend->run[h].n -= led->n_tok - at.n_tok;
    }
    at.run = s->attend->run;
    TRY(cb_store_append(&s->store[l], s->dev, k, v, led->q_stride, at.n_tok, pos0));
    if (m->fold)
        TRY(m->fold(s->policy, l, s->attend->state[l], was, was + at.n_tok));
    if (cb_selects(&s->plan[l].read))
        cb_select_chunk(s, l, at.q, at.q_stride, at.n_tok, pos0);
    if (cb_wants(&s->plan[l].want, 1))
        cb_measure_chunk(s, l, &at, pos0, end);
    return CB_OK;
}

int cb_attend(struct cb_session *s, int l, const float *qkv, int n, int pos0, int pos_end,
              float *out)
{
    const struct hparams *hp = &s->model->hp;
    const struct method *m = s->policy->m;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd, was = s->store[l].n[0];
    const int selects = cb_selects(&s->plan[l].read),
              wants = cb_wants(&s->plan[l].want, !s->decoding);
    struct attend *a = s->attend;
    const struct attn at = { .n_tok = n,
                             .n_head = hp->n_head,
                             .n_kv = hp->n_kv,
                             .hd = hp->hd,
                             .scale = 1.0f / sqrtf((float)hp->hd),
                             .causal = !s->decoding,
                             .window = cb_attend_window(s, l),
                             .type_k = s->store[l].type_k,
                             .type_v = s->store[l].type_v,
                             .run = a->run,
                             .q = qkv,
                             .q_stride = nq + 2 * nkv,
                             .logit_stride = s->n_ctx,
                             .out = out,
                             .lse = wants || s->n_follower ? a->lse : NULL };

    if (!s->decoding || s->plan[l].read.what != READ_ALL || cb_distant_is(s, l))
        cb_store_pack(&s->store[l]);
    TRY(cb_store_append(&s->store[l], s->dev, qkv + nq, qkv + nq + nkv, nq + 2 * nkv, n, pos0));
    if (m->fold)
        TRY(m->fold(s->policy, l, a->state[l], was, was + n));
    if (cb_distant_is(s, l)) {
        TRY(cb_distant_attention(s, l, &at, pos0, pos_end));
    } else {
        if (!cb_prefill_runs(s, l, pos0, n, a->run))
            TRY(set_runs(s, l, qkv));
        attention(s, l, &at);
        count_read(s, l);
    }
    cb_prefill_chose(s, l, qkv, at.q_stride, n, pos0, pos_end);
    a->has_scores = 0;
    for (int i = 0; i < s->n_follower; i++)
        TRY(follow(s->follower[i], l, &at, pos0));
    if (selects)
        choose_for_others(s, l, &at, pos0);
    if (!wants)
        return CB_OK;
    if (s->decoding)
        return step_scores(s, l, &at);
    cb_measure_chunk(s, l, &at, pos0, pos_end);
    return CB_OK;
}

static void note_peak(struct cb_session *s, int l)
{
    const uint64_t now = cb_session_kv_bytes(s);
    const int n = cb_store_max_len(&s->store[l]);

    if (n > s->n_most)
        s->n_most = n;
    if (now > s->kv_peak_bytes)
        s->kv_peak_bytes = now;
}

/* The policy drops what it does not keep, and of the rest the oldest is quantised. */
static int settle(struct cb_session *s, int l, const struct scores *sc)
{
    struct attend *a = s->attend;

    if (s->policy->m->compact) {
        cb_edit_begin(a->edit, l, !s->decoding);
        TRY(s->policy->m->compact(s->policy, l, a->state[l], sc, a->edit));
        TRY(cb_edit_apply(a->edit));
    }
    TRY(cb_store_seal(&s->store[l]));
    if (!s->decoding)
        cb_store_huge_pages(&s->store[l]);
    return s->store[l].kivi ? cb_kivi_advance(&s->store[l], s->dev) : CB_OK;
}

int cb_attend_end(struct cb_session *s, int l)
{
    const struct method *m = s->policy->m;
    struct attend *a = s->attend;

    for (int i = 0; i < s->n_follower; i++)
        TRY(cb_attend_end(s->follower[i], l));
    if (!s->decoding || l == s->model->hp.n_layer - 1)
        note_peak(s, l);
    if (!s->decoding && cb_wants(&s->plan[l].want, 1)) {
        cb_measure_prompt(s, l, &a->scores);
        a->has_scores = 1;
    }
    if (a->has_scores && m->observe)
        TRY(m->observe(s->policy, l, a->state[l], &a->scores));
    if (l == s->model->hp.n_layer - 1)
        cb_distant_end(s);
    if (s->decoding || !s->plan[l].late)
        TRY(settle(s, l, a->has_scores ? &a->scores : NULL));
    for (int i = 0; !s->decoding && l == s->model->hp.n_layer - 1 && i <= l; i++)
        if (s->plan[i].late)
            TRY(settle(s, i, NULL));
    return CB_OK;
}
