/* SPDX-License-Identifier: MIT */
/* duo.c - DuoAttention (Xiao et al. 2024): retrieval heads keep everything, streaming heads the
 * first tokens and the last ones. A preset says how much each KV head needs its whole context. */
#include <stdio.h>
#include <stdlib.h>

#include "policy/policy.h"

enum { PRESET, HEADS, SPARSITY, SINK, RECENT, CHUNK };

static const struct method_opt opts[] = {
    [PRESET] = { "preset", "file",
                 "JSON file whose \"alpha\" has a number for each layer's KV heads, large for "
                 "retrieval heads; default: that of the model",
                 OPT_FILE, 0, 0, 0, NULL },
    [HEADS] = { "heads", "heads",
                "instead of a preset: the retrieval heads, KV heads counted through the layers: "
                "2+8+18",
                OPT_TEXT, 0, 0, 0, NULL },
    [SPARSITY] = { "sparsity", "", "share of the KV heads that stream, with a preset", OPT_NUM, 0.5,
                   0, 1, NULL },
    [SINK] = { "sink", "tokens", "first tokens that streaming heads keep", OPT_INT, 128, 0, 1e6,
               NULL },
    [RECENT] = { "recent", "tokens", "last tokens that streaming heads keep", OPT_INT, 256, 1, 1e9,
                 NULL },
    [CHUNK] = { "chunk", "tokens",
                "streaming heads drop after every n tokens of a prompt; 0: at its end", OPT_INT, 0,
                0, 1 << 20, NULL },
    { .name = NULL },
};

/* p->mem: [n_layer][n_kv] 1 = a retrieval head */
static const char *retrieves(const struct policy *p, int l)
{
    return (const char *)p->mem + (size_t)l * (size_t)p->sh.n_kv;
}

static int listed(struct policy *p, char *full, int n)
{
    const char *text = p->val[HEADS].text, *at = text;
    int last = -1;

    for (;;) {
        char *end;
        const long h = strtol(at, &end, 10);
        if (end == at || (*end && *end != '+'))
            return cb_policy_refuse(p, "heads=%s: must be KV heads joined by +", text);
        if (h <= last || h >= n)
            return cb_policy_refuse(p, "heads=%s: must ascend, up to %d", text, n - 1);
        full[h] = 1;
        last = (int)h;
        if (!*end)
            return 0;
        at = end + 1;
    }
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Heads at or above the quantile are retrieval heads. Equal numbers are told apart by their place,
 * as the authors do by noise; the later one retrieves. */
static void by_quantile(double *alpha, double *sorted, int n, double sparsity, char *full)
{
    const double at = sparsity * (n - 1);
    const int i = (int)at;
    double limit;

    for (int h = 0; h < n; h++)
        sorted[h] = alpha[h] = (alpha[h] < 1 ? alpha[h] : 1) + h * 1e-9;
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    limit = i + 1 < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
    for (int h = 0; h < n; h++)
        full[h] = sparsity < 1 && alpha[h] >= limit;
}

static int from_preset(struct policy *p, char *full, int n)
{
    double *alpha = calloc(2 * (size_t)n, sizeof *alpha);
    struct preset *x = NULL;
    int err = alpha ? cb_preset_open(p, p->val[PRESET].text, &x) : cb_policy_no_memory(p);

    if (!err && !x)
        err = cb_policy_refuse(p, "no preset for this model: give preset= or heads=");
    if (!err)
        err = cb_preset_numbers(p, x, "alpha", alpha, n);
    if (!err) {
        by_quantile(alpha, alpha + n, n, p->val[SPARSITY].num, full);
        snprintf(p->note, sizeof p->note, "policy duo: heads as preset %.190s measured",
                 cb_preset_path(x));
    }
    cb_preset_close(x);
    free(alpha);
    return err;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int n = sh->n_layer * sh->n_kv;
    char *full = p->mem = calloc((size_t)n, 1);

    if (!full)
        return cb_policy_no_memory(p);
    if (p->val[HEADS].set && (p->val[PRESET].set || p->val[SPARSITY].set))
        return cb_policy_refuse(p, "heads and preset: give one of them");
    for (int l = 0; l < sh->n_layer; l++)
        row[l].drop_every = (int)p->val[CHUNK].num;
    p->at_most = 1; /* the heads of a layer differ */
    return p->val[HEADS].set ? listed(p, full, n) : from_preset(p, full, n);
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    const int sink = (int)p->val[SINK].num, keep = sink + (int)p->val[RECENT].num;
    int *slot = cb_evict_tmp(e), err = 0;

    (void)state;
    (void)s;
    for (int h = 0; h < p->sh.n_kv && !err; h++) {
        const int n = cb_view_len(p, l, h);
        if (n > keep && !retrieves(p, l)[h])
            err = n == keep + 1
                      ? cb_evict_drop(e, h, sink)
                      : cb_evict_keep(e, h, slot, cb_keep_ends(n, sink, keep - sink, slot));
    }
    return err;
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const double keep = p->val[SINK].num + p->val[RECENT].num;

    for (int h = 0; h < p->sh.n_kv; h++)
        if (retrieves(p, l)[h])
            return n_prompt + n_gen;
    return cb_keep_slots(keep, n_prompt, n_gen, 0);
}

const struct method cb_method_duo = {
    .name = "duo",
    .cite = "Xiao et al., arXiv:2410.10819",
    .brief = "retrieval heads keep everything, the others the first tokens and the last ones",
    .opts = opts,
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
