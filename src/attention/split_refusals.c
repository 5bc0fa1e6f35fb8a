/* SPDX-License-Identifier: MIT */
/* split_refusals.c - what does not go with a context over several ranks. */
#include "attend.h"
#include "base/err.h"
#include "reader.h"
#include "scoring_table.h"

static int refuse(const struct attention *a, const char *why)
{
    return cb_fail(CB_EUNSUPPORTED, "split context: policy %s: %s", a->policy->m->name, why);
}

static int check_layer(const struct attention *a, int l)
{
    const struct layer *y = &a->model->layer[l];

    if (y->mixer || y->ngrams)
        return cb_fail(CB_EUNSUPPORTED,
                       "split context: layer %d remembers without keys: its tokens cannot be dealt "
                       "out",
                       l);
    if (y->kv_back || y->lends || (a->model->hp.chunked && y->window))
        return cb_fail(CB_EUNSUPPORTED,
                       "split context: layer %d shares keys with another one, or attends within "
                       "chunks; not yet",
                       l);
    return CB_OK;
}

/* Layer l keeps all tokens, and every token reads all of them, or those that it chooses over all
 * ranks. */
static int keeps_all(const struct attention *a, int l)
{
    const struct reader *r = a->layer[l]->r;
    const int deals = r->deals_by ? r->deals_by(a, l) > 0 : cb_reader_has(a, l, READ_PLAIN);

    return deals && !a->plan[l].window && !cb_attend_evicts(a, l) &&
           a->plan[l].score.when == WHEN_NEVER;
}

/* A layer of a policy that drops tokens: all ranks have all rows of a prompt until the layer
 * settles, so that each decides alone, and the same. */
static int check_dropping(const struct attention *a, int l)
{
    if (!cb_attend_evicts(a, l) && !a->plan[l].window)
        return refuse(a, "it chooses what a token reads; not yet");
    if (!cb_reader_has(a, l, READ_PLAIN) && !cb_reader_has(a, l, READ_PROMPT) &&
        !cb_reader_has(a, l, READ_FIRST))
        return refuse(a, "its prompts read tokens at other positions, or some of them; not yet");
    if ((cb_attend_drops_every(a, l) && !a->plan[l].window) || a->plan[l].prompt_window)
        return refuse(a, "it drops tokens while a prompt is read; not yet");
    if (cb_scoring_is(a, l) && !cb_scoring_shares(a, l))
        return refuse(a, "it scores tokens by more than the last queries of a prompt, which are "
                         "dealt out; not yet");
    return CB_OK;
}

int cb_split_check(const struct attention *a, char *deals)
{
    if (a->dev->ops->memory)
        return cb_fail(CB_EUNSUPPORTED, "split context: not yet on a device with memory of its "
                                        "own");
    if (cb_bank_has_kivi(a->bank))
        return cb_fail(CB_EUNSUPPORTED, "split context: not yet with keys or values of types kivi "
                                        "and planes");
    if (a->prompt.how || a->by_repeat || a->pass)
        return refuse(a, "its prompts are not dense; not yet");
    for (int l = 0; l < a->bank->n_layer; l++) {
        TRY(check_layer(a, l));
        if (!keeps_all(a, l))
            TRY(check_dropping(a, l));
        deals[l] = a->model->layer[l].n_kv && !a->model->layer[l].window && keeps_all(a, l);
    }
    return CB_OK;
}

void cb_split_deals(const struct attention *a, char *deals)
{
    const int none = cb_bank_has_kivi(a->bank) || a->prompt.how || a->by_repeat || a->pass;

    for (int l = 0; l < a->bank->n_layer; l++) {
        const struct layer *y = &a->model->layer[l];
        deals[l] = !none && y->n_kv && !y->window && !y->kv_back && !y->lends && keeps_all(a, l);
    }
}
