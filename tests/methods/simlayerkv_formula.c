/* SPDX-License-Identifier: MIT */
/* simlayerkv_formula.c - SimLayerKV, from the paper's formulas, in doubles: the lazy layers, and
 * the layers that figures 3 and 6 trim in their place. */
#include <string.h>

#include "formulas.h"

enum { SINK = 2, RECENT = 10, ENDS = SINK + RECENT, LAYERS = CB_REF_LAYERS };

double cb_ref_threshold;

static int is_lazy[LAYERS], decided;
static int kept[LAYERS]; /* tokens of a layer that drops in place of a lazy one; 0: all */
static double share[LAYERS];

void cb_ref_sim_reset(void)
{
    memset(is_lazy, 0, sizeof is_lazy);
    memset(kept, 0, sizeof kept);
    decided = 1;
}

/* Attention of the last `queries` of the feed to the ends: which layers are lazy? A layer that was
 * trimmed is not asked again. */
static void look(const struct slow *s, int queries)
{
    const int first = s->n - queries > s->feed ? s->n - queries : s->feed;

    decided = 1;
    for (int l = 0; l < LAYERS; l++) {
        double m = 0;
        for (int i = first; i < s->n; i++)
            m += cb_ref_ends(s, l, i, SINK, RECENT) / (s->n - first);
        if (kept[l])
            continue;
        share[l] = m;
        is_lazy[l] |= m > cb_ref_threshold;
    }
}

static void trim_lazy(struct slow *s)
{
    for (int l = 0; l < LAYERS; l++)
        if (is_lazy[l])
            cb_ref_drop_middle(s, l, SINK, RECENT);
}

void cb_ref_sim_decode(struct slow *s, int prompt)
{
    if (!prompt && !decided)
        look(s, 1);
    if (!prompt)
        trim_lazy(s);
    else
        decided = 0;
}

void cb_ref_sim_prefill(struct slow *s, int prompt)
{
    if (prompt)
        look(s, 6);
    trim_lazy(s);
}

/* ---- layers in place of the lazy ones ---- */

static int count(const int *x)
{
    int n = 0;

    for (int l = 0; l < LAYERS; l++)
        n += x[l] > 0;
    return n;
}

static void choose_nonlazy(const struct slow *s)
{
    (void)s;
    while (count(kept) < count(is_lazy)) {
        int least = -1;
        for (int l = 0; l < LAYERS; l++)
            if (!is_lazy[l] && !kept[l] && (least < 0 || share[l] < share[least]))
                least = l;
        if (least < 0)
            return;
        kept[least] = ENDS;
    }
}

/* Budgets on a line, from all to what is left of the sum, or to the ends from the rest */
static void choose_pyramid(const struct slow *s)
{
    const int total = LAYERS * s->n - count(is_lazy) * (s->n - ENDS);
    double top = ENDS, bottom = 2.0 * total / LAYERS - ENDS, part[LAYERS];
    int sum = 0;

    if (!count(is_lazy))
        return;
    if (bottom > s->n) {
        bottom = s->n;
        top = 2.0 * total / LAYERS - s->n;
    }
    for (int l = 0; l < LAYERS; l++) {
        const double x = bottom + (top - bottom) * l / (LAYERS - 1);
        kept[l] = (int)x;
        part[l] = x - kept[l];
        sum += kept[l];
    }
    for (; sum < total; sum++) {
        int best = 0;
        for (int l = 1; l < LAYERS; l++)
            best = part[l] > part[best] ? l : best;
        kept[best]++;
        part[best]--;
    }
    for (int l = 0; l < LAYERS; l++)
        kept[l] = kept[l] < s->n ? kept[l] : 0;
}

static void trim_to(struct slow *s, int first)
{
    for (int l = first; l < LAYERS; l++)
        if (kept[l])
            cb_ref_drop_middle(s, l, SINK, kept[l] - SINK);
}

/* The first generated token decides when it has passed all layers: the last one drops at once, the
 * others at the next token. */
static void after_token(struct slow *s, int prompt, void (*choose)(const struct slow *))
{
    const int decides = !prompt && !decided;

    if (prompt)
        decided = 0;
    if (decides) {
        trim_to(s, 0);
        look(s, 1);
        choose(s);
        trim_to(s, LAYERS - 1);
    } else if (!prompt) {
        trim_to(s, 0);
    }
}

static void after_prompt(struct slow *s, int prompt, void (*choose)(const struct slow *))
{
    if (prompt) {
        look(s, 6);
        choose(s);
    }
    trim_to(s, 0);
}

void cb_ref_sim_nonlazy(struct slow *s, int prompt)
{
    after_token(s, prompt, choose_nonlazy);
}

void cb_ref_sim_nonlazy_prefill(struct slow *s, int prompt)
{
    after_prompt(s, prompt, choose_nonlazy);
}

void cb_ref_sim_pyramid(struct slow *s, int prompt)
{
    after_token(s, prompt, choose_pyramid);
}

void cb_ref_sim_pyramid_prefill(struct slow *s, int prompt)
{
    after_prompt(s, prompt, choose_pyramid);
}
