/* SPDX-License-Identifier: MIT */
/* scoring_table.c - the table of scorings, and which of them a session's layers have. */
#include "scoring_table.h"

#include <stdlib.h>

#include "base/err.h"
#include "prefill.h"
#include "scoring/scores.h"
#include "state_memory.h"

extern const struct scoring cb_scoring_expected;
extern const struct scoring cb_scoring_every_query;
extern const struct scoring cb_scoring_last_queries;
extern const struct scoring cb_scoring_last_share;
extern const struct scoring cb_scoring_repeat;
extern const struct scoring cb_scoring_squares;

static const struct scoring *const table[] = {
    &cb_scoring_repeat,  &cb_scoring_expected,   &cb_scoring_last_queries,
    &cb_scoring_squares, &cb_scoring_last_share, &cb_scoring_every_query,
};

enum { N_SCORINGS = sizeof table / sizeof *table };

static void assign(struct attention *a, int l)
{
    int i = 0;

    while (i < N_SCORINGS && !table[i]->claims(&a->plan[l]))
        i++;
    if (i == N_SCORINGS)
        return;
    a->scored[l] = &a->scorings[i];
    a->scorings[i].how = table[i];
    a->by_repeat |= table[i]->by_repeat;
}

int cb_scorings_open(struct attention *a)
{
    a->scored = cb_calloc((size_t)a->bank->n_layer, sizeof *a->scored);
    a->scorings = cb_calloc(N_SCORINGS, sizeof *a->scorings);
    if (!a->scored || !a->scorings)
        return CB_ENOMEM;
    for (int l = 0; l < a->bank->n_layer; l++)
        assign(a, l);
    TRY(cb_scores_open(a));
    for (int i = 0; i < N_SCORINGS; i++)
        if (a->scorings[i].how)
            TRY(cb_state_open(a->scorings[i].how->state, a->scorings[i].how->open, a,
                              &a->scorings[i].x));
    return CB_OK;
}

void cb_scorings_close(struct attention *a)
{
    for (int i = 0; a->scorings && i < N_SCORINGS; i++)
        cb_state_free(a->scorings[i].x);
    free(a->scorings);
    free(a->scored);
    cb_state_free(a->scores_at);
}

size_t cb_scorings_bytes(const struct attention *a, int n_most)
{
    size_t sum = cb_scores_bytes(a, n_most);

    for (int i = 0; i < N_SCORINGS; i++)
        sum += cb_state_work(a->scorings[i].x, n_most);
    return sum;
}

int cb_scoring_reads(const struct attention *a, int l)
{
    return a->scored[l] && a->scored[l]->how->reads;
}

int cb_scoring_is(const struct attention *a, int l)
{
    return a->scored[l] && a->plan[l].score.when & WHEN_PROMPT;
}

int cb_scoring_reads_parts(const struct attention *a, int l)
{
    return (cb_scoring_is(a, l) && !cb_scoring_shares(a, l)) || a->by_repeat || a->n_follower;
}

int cb_scoring_shares(const struct attention *a, int l)
{
    return a->scored[l]->how->share != NULL;
}

int cb_scoring_share(struct attention *a, int l)
{
    return a->scored[l] && a->scored[l]->how->share ? a->scored[l]->how->share(a, l) : CB_OK;
}

/* ---- a prompt ---- */

int cb_scoring_chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                     const float *lse)
{
    const int every = cb_prefill_drops_every(a, c->l), at = c->pos0 - a->bank->n_seen;
    const int first = every ? at % every == 0 : at == 0;

    if (cb_scores_gatherer(a, c->l) != a)
        return CB_OK;
    if (first)
        cb_scores_clear(a->scores_at->score, a->model->hp.n_head, a->bank->n_ctx,
                        cb_scores_most(a, c));
    return a->scored[c->l]->how->chunk(a, c, read, lse, first);
}

int cb_scoring_repeated(struct attention *a, const struct chunk *c)
{
    const struct scored *s = a->scored[c->l];

    return s && s->how->by_repeat ? s->how->chunk(a, c, a, NULL, 0) : CB_OK;
}

void cb_scoring_prompt(struct attention *a, int l, struct scores *out)
{
    a->scored[l]->how->prompt(a, l, out);
}
