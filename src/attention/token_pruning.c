/* SPDX-License-Identifier: MIT */
/* token_pruning.c - which tokens of a prompt the next layers compute: the policy's choice, checked.
 */
#include "token_pruning.h"

#include "base/err.h"
#include "context_split.h"

/* A layer's window counts tokens, and some are missing in upper layers. */
static int fits(const struct attention *a)
{
    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->model->layer[l].mixer)
            return cb_fail(CB_EUNSUPPORTED,
                           "policy %s: leaves tokens out of upper layers; layer %d remembers "
                           "without keys, so it needs all of them",
                           a->policy->m->name, l);
    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->model->layer[l].window)
            return cb_fail(CB_EUNSUPPORTED,
                           "policy %s: leaves tokens out of upper layers; layer %d has a window, "
                           "which counts them",
                           a->policy->m->name, l);
    return CB_OK;
}

int cb_token_pruning_open(struct attention *a)
{
    int any = 0;

    for (int l = 0; l < a->bank->n_layer; l++)
        any |= a->plan[l].narrows;
    if (!any)
        return CB_OK;
    TRY(fits(a));
    a->pass = cb_alloc_aligned((size_t)a->bank->n_ctx, sizeof *a->pass);
    return a->pass ? CB_OK : CB_ENOMEM;
}

int cb_attention_narrows(const struct attention *a)
{
    return a->pass != NULL;
}

int cb_attention_is_partial(const struct attention *a)
{
    return a->pass != NULL || cb_context_split_deals_work(a);
}

int cb_attend_narrow(struct attention *a, int l, int n, const int **row)
{
    struct policy *p = a->policy;
    const int i = cb_policy_index(p, l);
    int m, last = -1;

    if (!a->plan[l].narrows)
        return n;
    m = p->m->pass(p, i, p->layer_state[i], &a->scores, n, a->pass);
    for (int j = 0; m != n && j < m; last = a->pass[j], j++)
        if (a->pass[j] <= last || a->pass[j] >= n)
            return cb_fail(CB_EARG, "policy %s: layer %d: token %d of %d out of range or order",
                           p->m->name, l, a->pass[j], n);
    if (m != n && m >= 0 && last != n - 1)
        return cb_fail(CB_EARG, "policy %s: layer %d: leaves out the last token", p->m->name, l);
    *row = a->pass;
    return m;
}
