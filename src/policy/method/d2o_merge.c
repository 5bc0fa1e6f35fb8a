/* SPDX-License-Identifier: MIT */
/* d2o_merge.c - D2O's merging (Wan et al., 2024, section 4.2.2): a dropped token is merged into the
 * kept token with the most similar key (table 5: or value; or keys by keys and values by values,
 * see similar=) if the similarity u reaches a moving average. Tokens x that are merged into slot k
 * give, by merge=: eq11     (e k + sum exp(u) x) / (e + sum exp(u)): equation 11, each term with
 * its own weight printed  (e k + S sum x) / (e + S), S = sum exp(u): equation 11 as printed, not a
 * mean code     (k + sum u x) / (1 + count): as in the published code avg      (k + sum x) / (1 +
 * count) */
#include "d2o.h"

#include <math.h>

static struct merge weighed(const struct d2o_merge *how, enum merge_sides sides,
                            const struct near_slot *x, float sum)
{
    const float like = expf(x->cosine), e = expf(1);
    struct merge m = { .to = x->to, .from = x->from, .sides = sides };

    switch (how->weights) {
    case D2O_EQ11:
        m.w_to = e;
        m.w_from = m.part = like;
        break;
    case D2O_PRINTED:
        m.w_to = e;
        m.w_from = sum;
        m.part = like;
        break;
    case D2O_CODE:
        m.w_to = m.part = 1;
        m.w_from = x->cosine;
        break;
    default:
        m.w_to = m.w_from = m.part = 1;
        break;
    }
    return m;
}

static void move_threshold(const struct near_slot *near, int n, double beta, double *tau)
{
    double mean = 0;

    for (int i = 0; i < n; i++)
        mean += (double)near[i].cosine / n;
    if (n > 0)
        *tau = *tau != 0 ? beta * mean + (1 - beta) * *tau : mean;
}

/* Merges what is similar in its keys, or with v = 1 in its values. */
static int merge(struct eviction *e, int kv, const struct d2o_merge *how, int v,
                 enum merge_sides sides, double *tau)
{
    float *sum = cb_evict_row(e); /* by slot: sum of exp(u) over the tokens merged into it */
    const struct near_slot *near;
    const int n = cb_evict_nearest(e, kv, v, &near);

    if (n < 0)
        return n;
    move_threshold(near, n, how->beta, tau);
    for (int i = 0; i < n; i++)
        sum[near[i].to] = 0;
    for (int i = 0; i < n; i++)
        if ((double)near[i].cosine >= *tau)
            sum[near[i].to] += expf(near[i].cosine);
    for (int i = 0; i < n; i++) {
        const struct merge m = weighed(how, sides, &near[i], sum[near[i].to]);
        const int err =
            (double)near[i].cosine >= *tau && m.to >= how->first ? cb_evict_merge(e, kv, &m) : 0;
        if (err)
            return err;
    }
    return 0;
}

int cb_d2o_merge(struct eviction *e, int kv, const struct d2o_merge *how, double *tau)
{
    const enum merge_sides sides = how->keys ? SIDES_BOTH : SIDES_VALUES;
    int err;

    if (how->similar != D2O_EACH)
        return merge(e, kv, how, how->similar == D2O_VALUES, sides, tau);
    err = merge(e, kv, how, 0, SIDES_KEYS, tau);
    return err ? err : merge(e, kv, how, 1, SIDES_VALUES, tau + 1);
}
