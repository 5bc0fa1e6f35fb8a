/* SPDX-License-Identifier: MIT */
/* prefill_table.c - which form of prefill a session has, and whether its policy goes with it. */
#include "prefill_table.h"

#include <stdlib.h>

#include "attend.h"
#include "base/err.h"
#include "prefill.h"
#include "reader_table.h"
#include "state_memory.h"

extern const struct prefill cb_prefill_chunks;
extern const struct prefill cb_prefill_blocks;

/* Do its scores come from every query of a prompt? */
static int scores_all(const struct score_plan *s)
{
    return s->when & WHEN_PROMPT && !s->window && !s->future;
}

const char *cb_attention_refuses(const struct method *form, const struct layer_plan *row,
                                 int n_layer)
{
    for (int l = 0; form->prompt && l < n_layer; l++) {
        const struct reader *two[2], *r = cb_reader_of(row, n_layer, l, NULL, two);
        if (row[l].select.on)
            return "the model's own selector names what prompts read as well";
        if (row[l].narrows)
            return "it leaves tokens of the prompt out of upper layers";
        if (form->by_blocks && scores_all(&row[l].score))
            return "it sums the scores of all queries, which skip blocks of tokens";
        if (row[l].repeat.piece)
            return "it feeds the prompt again, whose tokens all read all of it";
        if (r && r->no_choice)
            return r->no_choice;
        /* a window is dropped at the prompt's end instead */
        if (row[l].prompt_window || (row[l].drop_every && !row[l].window))
            return "it drops tokens within the prompt, so they cannot be chosen";
    }
    return NULL;
}

static int fits(const struct attention *a, const struct policy *form)
{
    const char *why = cb_attention_refuses(form->m, a->plan, a->bank->n_layer);

    if (!why && a->policy->sh.selects)
        why = "the model was trained to read what its own selector names";
    return why ? cb_policy_refuse(form, "not with policy %s: %s", a->policy->m->name, why) : CB_OK;
}

/* as[l]: the layer whose choice decoded tokens read in layer l, by the policy's plan and in its
 * numbers of layers */
static void of_policy(const struct policy *p, int *as)
{
    for (int l = 0; l < p->sh.n_layer; l++)
        as[l] = p->plan[l].reads;
    for (int l = 0; l < p->sh.n_layer; l++)
        if (as[l] >= 0)
            as[as[l]] = as[l];
}

/* The same in the model's numbers */
static void number(const struct policy *p, int *as)
{
    const int *at = p->sh.at;

    for (int l = p->sh.n_model_layer - 1; at && l >= 0; l--) {
        const int i = cb_policy_index(p, l);
        as[l] = i < 0 || as[i] < 0 ? -1 : at[as[i]];
    }
}

int cb_prefill_open(struct attention *a, const char *spec)
{
    struct prompt_reading *p = &a->prompt;

    if (!(p->plan.as = cb_calloc((size_t)a->bank->n_layer, sizeof *p->plan.as)))
        return CB_ENOMEM;
    TRY(cb_prompt_open(spec ? spec : "dense", &a->policy->sh, &p->form));
    if (!p->form->m->prompt)
        return CB_OK;
    TRY(fits(a, p->form));
    of_policy(a->policy, p->plan.as);
    TRY(p->form->m->prompt(p->form, &a->policy->sh, &p->plan));
    number(a->policy, p->plan.as);
    p->how = p->plan.blocks.rule ? &cb_prefill_blocks : p->plan.chunk ? &cb_prefill_chunks : NULL;
    return p->how ? cb_state_open(p->how->state, p->how->open, a, &p->x) : CB_OK;
}

void cb_prefill_close(struct attention *a)
{
    cb_state_free(a->prompt.x);
    cb_policy_close(a->prompt.form);
    free(a->prompt.plan.as);
}
