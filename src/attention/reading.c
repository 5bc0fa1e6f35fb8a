/* SPDX-License-Identifier: MIT */
/* reading.c - which slots of a layer queries read. A prompt reads all; a decoded token what the
 * plan says: all, the ends, the best units by the policy's rank, or what another layer chose. */
#include "reading.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "chooser.h"
#include "scores.h"

/* Slots that a layer chose for itself. */
struct choice {
    int32_t *slot; /* [n_kv][n_ctx], ascending */
    int *n;        /* [n_kv] */
};

struct reading {
    struct choice *of; /* [n_layer]; slot NULL where the plan needs none */
    float *rank;       /* [n_kv][n_ctx] scores of units */
    int32_t *unit;     /* [n_ctx] */
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

int cb_reading_open(struct cb_session *s)
{
    const int n_layer = s->model->hp.n_layer;
    struct reading *x;
    int any = 0;

    for (int l = 0; l < n_layer; l++)
        any |= chooses(&s->plan[l].read);
    if (!any)
        return CB_OK;
    x = s->reading = cb_calloc(1, sizeof *x);
    if (!x || !(x->of = cb_calloc((size_t)n_layer, sizeof *x->of)))
        return CB_ENOMEM;
    for (int l = 0; l < n_layer; l++)
        if (chooses(&s->plan[l].read))
            TRY(choice_open(s, &x->of[l]));
    x->rank = cb_alloc_aligned((size_t)s->model->hp.n_kv * (size_t)s->n_ctx, sizeof *x->rank);
    x->unit = cb_alloc_aligned((size_t)s->n_ctx, sizeof *x->unit);
    return x->rank && x->unit ? CB_OK : CB_ENOMEM;
}

void cb_reading_close(struct cb_session *s)
{
    struct reading *x = s->reading;

    if (!x)
        return;
    for (int l = 0; x->of && l < s->model->hp.n_layer; l++) {
        free(x->of[l].slot);
        free(x->of[l].n);
    }
    free(x->of);
    free(x->rank);
    free(x->unit);
    free(x);
}

size_t cb_reading_bytes(const struct cb_session *s, size_t n_most)
{
    const size_t n_kv = (size_t)s->model->hp.n_kv;
    size_t words = (n_kv + 1) * n_most;

    for (int l = 0; s->reading && l < s->model->hp.n_layer; l++)
        words += s->reading->of[l].slot ? n_kv * n_most : 0;
    return s->reading ? words * sizeof(float) : 0;
}

/* ---- choosing ---- */

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

/* The k best units of one KV head by rank -> its choice. The current token is always read. */
static void choose_units(struct cb_session *s, int l, int kv, const float *rank)
{
    const struct read *r = &s->plan[l].read;
    struct choice *c = &s->reading->of[l];
    const int n = s->store[l].n[kv], n_cand = r->tail ? min_int(s->ctx_end, n) : n;
    const int n_unit = (n_cand + r->unit - 1) / r->unit, k = min_int(r->k, n_unit);
    struct read last = *r;

    if (!r->tail && !r->recent)
        last.recent = 1;
    s->dev->ops->topk(s->dev, rank, n_unit, k, s->reading->unit);
    c->n[kv] =
        expand(&last, n, n_cand, s->reading->unit, k, c->slot + (size_t)kv * (size_t)s->n_ctx);
}

static int choose_by_rank(struct cb_session *s, int l, void *state, const float *q)
{
    TRY(s->policy->m->rank(s->policy, l, state, q, s->reading->rank));
    for (int h = 0; h < s->model->hp.n_kv; h++) {
        const int n = s->store[l].n[h], unit = s->plan[l].read.unit;
        choose_units(s, l, h, s->reading->rank + (size_t)h * (size_t)((n + unit - 1) / unit));
    }
    return CB_OK;
}

static void choose_ends(struct cb_session *s, int l)
{
    const struct read *r = &s->plan[l].read;
    struct choice *c = &s->reading->of[l];

    for (int h = 0; h < s->model->hp.n_kv; h++)
        c->n[h] = cb_keep_ends(s->store[l].n[h], r->sink, r->recent,
                               c->slot + (size_t)h * (size_t)s->n_ctx);
}

/* ---- runs ---- */

static void read_all(const struct cb_session *s, int l, struct kv_run *run)
{
    for (int h = 0; h < s->model->hp.n_kv; h++)
        run[h] = cb_store_run(&s->store[l], h, 0, s->store[l].n[h]);
}

/* A layer that chooses for others leaves its logits behind, and so does one whose policy looks at
 * the token's score. */
static void leave_logits(struct cb_session *s, int l, struct kv_run *run)
{
    const int group = s->model->hp.n_head / s->model->hp.n_kv;
    float *logit = NULL;

    if (cb_selects(&s->plan[l].read))
        logit = cb_select_logits(s, l);
    else if (s->plan[l].read.what == READ_ALL && cb_wants(&s->plan[l].want, 0))
        logit = cb_scores_logits(s, l);
    for (int h = 0; logit && h < s->model->hp.n_kv; h++)
        run[h].logit = logit + (size_t)(h * group) * (size_t)s->n_ctx;
}

/* What layer `as` chose, for all KV heads. */
static void read_as(const struct cb_session *s, int as, struct kv_run *run)
{
    int n;
    const int32_t *slot = cb_select_slots(s, as, &n);

    for (int h = 0; slot && h < s->model->hp.n_kv; h++) {
        run[h].idx = slot;
        run[h].n = n;
    }
}

int cb_reading_runs(struct cb_session *s, int l, void *state, const float *q, struct kv_run *run)
{
    const struct read *r = &s->plan[l].read;

    read_all(s, l, run);
    if (s->decoding)
        leave_logits(s, l, run);
    if (s->decoding && r->what == READ_AS)
        read_as(s, r->as, run);
    if (!s->decoding || r->what == READ_ALL || r->what == READ_AS)
        return CB_OK;
    if (r->what == READ_TOP)
        TRY(choose_by_rank(s, l, state, q));
    if (r->what == READ_ENDS)
        choose_ends(s, l);
    for (int h = 0; h < s->model->hp.n_kv; h++) {
        const struct choice *c = &s->reading->of[l];
        if (c->n[h] == run[h].n) /* all of them: the same path as full attention */
            continue;
        run[h].idx = c->slot + (size_t)h * (size_t)s->n_ctx;
        run[h].n = c->n[h];
    }
    return CB_OK;
}
