/* SPDX-License-Identifier: MIT */
/* pod.c - PoD: every token is kept, but distant ones take less memory. For each KV head,
 * consecutive layers with similar attention form blocks. For distant tokens, which are neither
 * among the first nor recent, all layers of a block use the queries and keys of its first layer (Ma
 * et al., 2024: Compressing KV Cache for Long-Context LLM Inference with Inter-Layer Attention
 * Similarity, section 2). The paper trains the model for this; the file of such a model may hold
 * its blocks. Other models are not trained. Combined with SnapKV (section 3), distant tokens are
 * chosen once for a block, at its first layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

enum { PRESET, BLOCKS, SINKS, RECENT, GATE, SNAP, WINDOW, PROXIMAL };
enum { BY_DISTANCE, BY_WINDOW };

static const struct method_opt opts[] = {
    [PRESET] = { "preset", "file", "blocks of each KV head, as calibrate similarity writes them",
                 OPT_FILE, 0, 0, 0, NULL },
    [BLOCKS] = { "blocks", "layers",
                 "instead: first layers of the blocks of all KV heads, 0+8+12; "
                 "default: those of the model's file if it was trained for them, else its preset, "
                 "else pairs from the middle layer on",
                 OPT_LIST, 0, 0, 0, NULL },
    [SINKS] = { "sinks", "tokens", "first tokens that each layer reads with its own keys", OPT_INT,
                16, 1, 1e9, NULL },
    [RECENT] = { "recent", "tokens",
                 "last tokens that each layer reads with its own keys, the current one among them",
                 OPT_INT, 4080, 1, 1e9, NULL },
    [GATE] = { "gate", "",
               "a head ignores distant tokens where its attention to the others reaches this "
               "share; "
               "above 1: never",
               OPT_NUM, 2, 0, 2, NULL },
    [SNAP] = { "snap", "tokens", "SnapKV: tokens kept of a prompt, besides generated ones; 0: all",
               OPT_INT, 0, 0, 1e9, NULL },
    [WINDOW] = { "window", "tokens", "SnapKV: last queries that choose, always kept", OPT_INT, 64,
                 1, 4096, NULL },
    [PROXIMAL] = { "proximal", NULL,
                   "SnapKV: what each layer reads with its own keys after it has chosen; "
                   "window: the first tokens and the last `window` alone",
                   OPT_CHOICE, BY_DISTANCE, 0, 0, "distance window" },
    { .name = NULL },
};

/* blocks="0+8+12", or the default -> start[n_kv][n_layer] */
static int blocks(struct policy *p, const struct shape *sh, int *start)
{
    const char *at = p->val[BLOCKS].text;
    int from = -1;

    for (int l = 0; l < sh->n_layer && !p->val[BLOCKS].set; l++)
        start[l] = l >= sh->n_layer / 2 ? l - (l - sh->n_layer / 2) % 2 : l;
    for (; p->val[BLOCKS].set && at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL) {
        char *end;
        const long l = strtol(at, &end, 10);
        if (end == at || (*end && *end != '+'))
            return cb_policy_refuse(p, "blocks=%s: must be layers joined by +",
                                    p->val[BLOCKS].text);
        if (l >= sh->n_layer)
            return cb_policy_refuse(p, "blocks=%s: the model has layers 0 to %d",
                                    p->val[BLOCKS].text, sh->n_layer - 1);
        if (l <= from || (from < 0 && l))
            return cb_policy_refuse(p, "blocks=%s: must begin with 0 and ascend",
                                    p->val[BLOCKS].text);
        from = (int)l;
        for (int i = from; i < sh->n_layer; i++)
            start[i] = from;
    }
    for (int kv = 1; kv < sh->n_kv; kv++)
        memcpy(start + kv * sh->n_layer, start, (size_t)sh->n_layer * sizeof *start);
    return 0;
}

static int check(struct policy *p)
{
    if (p->val[PRESET].set && p->val[BLOCKS].set)
        return cb_policy_refuse(p, "preset and blocks: either, not both");
    if (p->val[SNAP].num > 0 && p->val[SNAP].num <= p->val[WINDOW].num)
        return cb_policy_refuse(p, "snap=%.10g: must be more than the window of %.10g",
                                p->val[SNAP].num, p->val[WINDOW].num);
    if (p->val[PROXIMAL].num == BY_WINDOW && p->val[SNAP].num == 0)
        return cb_policy_refuse(p, "proximal=window: needs snap");
    p->at_most = p->val[SNAP].num > 0; /* how many kept tokens are near depends on the text */
    return 0;
}

/* Those of a model that was trained for them */
static void trained(struct policy *p, const struct shape *sh, int *start, int *sinks, int *recent)
{
    memcpy(start, sh->trained_blocks, (size_t)(sh->n_kv * sh->n_layer) * sizeof *start);
    *sinks = sh->trained_sinks;
    *recent = sh->trained_recent;
    snprintf(p->note, sizeof p->note, "policy pod: blocks that the model was trained with");
}

/* Finds the blocks -> start[n_kv][n_layer], and sets the note */
static int find_blocks(struct policy *p, const struct shape *sh, int *start, int *sinks,
                       int *recent)
{
    struct preset *x = NULL;
    int err;

    if (sh->trained_blocks && !p->val[BLOCKS].set && !p->val[PRESET].set) {
        trained(p, sh, start, sinks, recent);
        return 0;
    }
    err = p->val[BLOCKS].set ? 0 : cb_preset_open(p, p->val[PRESET].text, &x);

    if (!err)
        err = x ? cb_preset_blocks(p, x, start, sinks, recent) : blocks(p, sh, start);
    snprintf(p->note, sizeof p->note, "policy pod: %sapproximates the paper's%s%.160s",
             sh->trained_blocks ? "not the blocks that the model was trained with, which "
                                : "training-free, which ",
             x ? "; blocks of preset "
             : p->val[BLOCKS].set
                 ? ""
                 : "; blocks are pairs of layers by rule, not calibrated for this model",
             x ? cb_preset_path(x) : "");
    cb_preset_close(x);
    return err;
}

/* from[l][kv] <- start[kv][l] */
static int leaders(struct policy *p, const struct shape *sh, int *from, int *sinks, int *recent)
{
    int *start = calloc((size_t)(sh->n_layer * sh->n_kv), sizeof *start), err;

    if (!start)
        return cb_policy_no_memory(p);
    err = find_blocks(p, sh, start, sinks, recent);
    for (int i = 0; !err && i < sh->n_layer * sh->n_kv; i++)
        from[i % sh->n_layer * sh->n_kv + i / sh->n_layer] = start[i];
    free(start);
    return err;
}

/* Entries of a list of kept slots: their number, and no more slots than the context has */
static size_t list_len(const struct policy *p)
{
    return (size_t)fmin(p->val[SNAP].num, p->sh.n_ctx) + 1;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *lay)
{
    int *from = p->mem = calloc((size_t)(sh->n_layer * sh->n_kv), sizeof *from);
    int sinks = (int)p->val[SINKS].num, recent = (int)p->val[RECENT].num, err;

    if (!from)
        return cb_policy_no_memory(p);
    err = check(p);
    if (!err)
        err = leaders(p, sh, from, &sinks, &recent);
    for (int l = 0; !err && l < sh->n_layer; l++) {
        lay[l].cross.sink = p->val[SINKS].set ? (int)p->val[SINKS].num : sinks;
        lay[l].cross.recent = p->val[RECENT].set ? (int)p->val[RECENT].num : recent;
        if (p->val[PROXIMAL].num == BY_WINDOW)
            lay[l].cross.recent_after = (int)fmin(p->val[WINDOW].num, lay[l].cross.recent);
        lay[l].cross.from = from + l * sh->n_kv;
        lay[l].cross.skip = (float)p->val[GATE].num;
        lay[l].late = p->val[SNAP].num > 0;
        for (int kv = 0; kv < sh->n_kv && p->val[SNAP].num > 0; kv++)
            if (lay[l].cross.from[kv] == l)
                lay[l].score = (struct score_plan){ .when = WHEN_PROMPT,
                                                    .window = (int)p->val[WINDOW].num,
                                                    .pool = 5,
                                                    .pool_kind = POOL_MEAN };
    }
    if (!err && p->val[SNAP].num > 0)
        err = cb_policy_state(p, sizeof(int) * (size_t)(sh->n_layer * sh->n_kv) * list_len(p));
    return err;
}

/* The list of slots kept by KV head kv's block that starts at layer l: list[0] is their number. */
static int *kept(const struct policy *p, int l, int kv)
{
    return (int *)p->state + (size_t)(l * p->sh.n_kv + kv) * list_len(p);
}

static int observe(struct policy *p, int l, void *st, const struct scores *sc)
{
    const int snap = (int)p->val[SNAP].num;

    (void)st;
    for (int kv = 0; kv < p->sh.n_kv; kv++) {
        const size_t row = (size_t)kv * (size_t)sc->stride;
        const int n = cb_view_len(p, l, kv), window = (int)p->val[WINDOW].num;
        int *keep = kept(p, l, kv);
        keep[0] = -1;
        if (n <= snap || p->plan[l].cross.from[kv] != l)
            continue;
        keep[0] = cb_keep_top(sc->s + row, sc->raw + row, n, snap, 0, window, keep + 1);
        if (keep[0] < 0)
            return keep[0];
    }
    return 0;
}

static int compact(struct policy *p, int l, void *st, const struct scores *sc, struct eviction *e)
{
    (void)st;
    (void)sc;
    if (!cb_evict_at_prompt(e) || !p->state)
        return 0;
    for (int kv = 0; kv < p->sh.n_kv; kv++) {
        const int *keep = kept(p, p->plan[l].cross.from[kv], kv);
        const int err = keep[0] < 0 ? 0 : cb_evict_keep(e, kv, keep + 1, keep[0]);
        if (err)
            return err;
    }
    return 0;
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const int snap = (int)p->val[SNAP].num;
    (void)l;
    return (snap && n_prompt > snap ? snap : n_prompt) + n_gen;
}

const struct method cb_method_pod = {
    .name = "pod",
    .cite = "Ma et al., 2024: Compressing KV Cache for Long-Context LLM Inference with Inter-Layer "
            "Attention Similarity",
    .brief = "keeps all; layers of a block share the keys of distant tokens",
    .opts = opts,
    .plan = plan_layers,
    .observe = observe,
    .compact = compact,
    .slots = slots_after,
};
