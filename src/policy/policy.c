/* SPDX-License-Identifier: MIT */
/* policy.c - the table of methods, and NAME:key=value,... to an opened policy. */
#include "policy.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

#include "bank/store_areas.h"
#include "base/err.h"
#include "base/number.h"
#include "base/suggest.h"
#include "base/words.h"

extern const struct method cb_method_d2o;
extern const struct method cb_method_duo;
extern const struct method cb_method_full;
extern const struct method cb_method_h2o;
extern const struct method cb_method_expected;
extern const struct method cb_method_infinigen;
extern const struct method cb_method_infllm;
extern const struct method cb_method_keydiff;
extern const struct method cb_method_kvzip;
extern const struct method cb_method_lm_infinite;
extern const struct method cb_method_minicache;
extern const struct method cb_method_omnikv;
extern const struct method cb_method_own;
extern const struct method cb_method_pyramidinfer;
extern const struct method cb_method_pyramidkv;
extern const struct method cb_method_quest;
extern const struct method cb_method_roco;
extern const struct method cb_method_sieve;
extern const struct method cb_method_simlayerkv;
extern const struct method cb_method_snapkv;
extern const struct method cb_method_streamingllm;
extern const struct method cb_method_window;
extern const struct method cb_method_tova;
extern const struct method cb_method_pod;
extern const struct method cb_prompt_dense, cb_prompt_minference, cb_prompt_omnikv, cb_prompt_sieve,
    cb_prompt_xattention;

/* The baseline comes first. */
/* clang-format off: a row a line */
static const struct method *const table[] = {
    &cb_method_full,         &cb_method_window,    &cb_method_streamingllm, &cb_method_h2o,
    &cb_method_snapkv,       &cb_method_omnikv,    &cb_method_pyramidkv,    &cb_method_simlayerkv,
    &cb_method_pod,          &cb_method_d2o,       &cb_method_tova,         &cb_method_sieve,
    &cb_method_quest,        &cb_method_keydiff,   &cb_method_expected,     &cb_method_duo,
    &cb_method_lm_infinite,  &cb_method_kvzip,     &cb_method_infllm,       &cb_method_roco,
    &cb_method_pyramidinfer, &cb_method_minicache, &cb_method_infinigen,    &cb_method_own,
};
/* clang-format on */

static const struct method *const forms[] = { &cb_prompt_dense, &cb_prompt_omnikv,
                                              &cb_prompt_xattention, &cb_prompt_sieve,
                                              &cb_prompt_minference };

struct method_kind {
    const char *name;
    const struct method *(*at)(int i);
};
static const struct method_kind policies = { "policy", cb_method_at };
static const struct method_kind prompts = { "prefill", cb_prompt_method_at };

const struct method *cb_method_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? table[i] : NULL;
}

const struct method *cb_prompt_method_at(int i)
{
    return i >= 0 && i < (int)(sizeof forms / sizeof *forms) ? forms[i] : NULL;
}

int cb_policy_refuse(const struct policy *p, const char *fmt, ...)
{
    char why[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return cb_fail(CB_EARG, "%s %s: %s", p->kind->name, p->m->name, why);
}

int cb_policy_no_memory(const struct policy *p)
{
    return cb_fail(CB_ENOMEM, "%s %s: out of memory", p->kind->name, p->m->name);
}

/* ---- names ---- */

static const char *method_name(const void *kind, int i)
{
    const struct method *m = ((const struct method_kind *)kind)->at(i);
    return m ? m->name : NULL;
}

static const char *opt_name(const void *method, int i)
{
    return ((const struct method *)method)->opts[i].name; /* the last row's is NULL */
}

static int find_method(const struct method_kind *kind, const char *name, size_t n,
                       const struct method **out)
{
    const int i = cb_name_find(name, n, method_name, kind);
    const char *near;
    char list[256];

    if (i >= 0) {
        *out = kind->at(i);
        return CB_OK;
    }
    near = cb_name_nearest(name, n, method_name, kind);
    if (near)
        return cb_fail(CB_EARG, "%s %.*s: unknown; did you mean %s?", kind->name, (int)n, name,
                       near);
    cb_name_list(list, sizeof list, method_name, kind);
    return cb_fail(CB_EARG, "%s %.*s: unknown; there are %s", kind->name, (int)n, name, list);
}

/* ---- values ---- */

static int set_number(const struct policy *p, const struct method_opt *o, const char *text,
                      struct opt_value *out)
{
    char *end, min[32], max[32];

    if (o->choices && !strcmp(text, o->choices)) {
        out->num = o->max;
        return CB_OK;
    }
    out->num = cb_number(text, &end);
    if (end == text || *end || !(out->num >= o->min && out->num <= o->max) ||
        (o->kind == OPT_INT && out->num != (double)(long long)out->num))
        return cb_policy_refuse(p, "%s=%s: must be %s of %s to %s%s%s", o->name, text,
                                o->kind == OPT_INT ? "an integer" : "a number",
                                cb_number_text(o->min, min), cb_number_text(o->max, max),
                                o->choices ? ", or " : "", o->choices ? o->choices : "");
    return CB_OK;
}

static int set_value(const struct policy *p, const struct method_opt *o, const char *text,
                     struct opt_value *out)
{
    out->set = 1;
    out->text = text;
    if (o->kind == OPT_FILE && p->sh.guest && strchr(text, '/'))
        return cb_policy_refuse(p, "%s: must be the name of a preset of the server, not a path",
                                o->name);
    switch (o->kind) {
    case OPT_NUM:
    case OPT_INT:
        return set_number(p, o, text, out);
    case OPT_FLAG:
        out->num = cb_word_index("0 1", ' ', text, strlen(text));
        break;
    case OPT_CHOICE:
        out->num = cb_word_index(o->choices, ' ', text, strlen(text));
        break;
    case OPT_LIST:
    case OPT_TEXT:
    case OPT_FILE:
        out->num = 0;
        break;
    }
    if (out->num < 0)
        return cb_policy_refuse(p, "%s=%s: must be one of: %s", o->name, text,
                                o->kind == OPT_FLAG ? "0 1" : o->choices);
    return CB_OK;
}

/* One key=value, ended in place. */
static int set_pair(struct policy *p, char *pair)
{
    char *eq = strchr(pair, '=');
    const size_t n = eq ? (size_t)(eq - pair) : strlen(pair);
    const int i = cb_name_find(pair, n, opt_name, p->m);

    if (i < 0) {
        const char *near = cb_name_nearest(pair, n, opt_name, p->m);
        char list[300];
        if (near)
            return cb_policy_refuse(p, "%.*s: unknown option; did you mean %s?", (int)n, pair,
                                    near);
        cb_name_list(list, sizeof list, opt_name, p->m);
        return cb_policy_refuse(p, "%.*s: unknown option; there %s%s", (int)n, pair,
                                *list ? "are " : "is none", list);
    }
    if (!eq && p->m->opts[i].kind != OPT_FLAG)
        return cb_policy_refuse(p, "%s: needs a value", pair);
    return set_value(p, &p->m->opts[i], eq ? eq + 1 : "1", &p->val[i]);
}

static int no_setting(const struct policy *p, const char *name, size_t n)
{
    const struct paper_setting *x;
    char list[160] = "none";
    size_t at = 0;

    for (int i = 0; p->kind == &policies && (x = cb_paper_setting_at(i)) && at < sizeof list; i++)
        if (!strcmp(x->method, p->m->name))
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? " " : "", x->name);
    return cb_policy_refuse(p, "as=%.*s: no such setting of this method; there are: %s", (int)n,
                            name, list);
}

/* The next pair of "key=value,..." -> its length; *at moves after it, and becomes NULL at the end
 */
static size_t next_pair(const char **at, const char **pair)
{
    const size_t n = strcspn(*at, ",");

    *pair = *at;
    *at = (*at)[n] ? *at + n + 1 : NULL;
    return n;
}

/* keys -> p->spec, with the options of a setting in front, where other keys override them */
static int expand(struct policy *p, const char *keys)
{
    const struct paper_setting *x = NULL;
    const char *at = keys, *pair;
    size_t cap, n;

    while (at) {
        const size_t len = next_pair(&at, &pair);
        if (!cb_begins(pair, "as="))
            continue;
        x = p->kind == &policies ? cb_paper_setting_find(pair + 3, len - 3, p->m->name) : NULL;
        if (!x)
            return no_setting(p, pair + 3, len - 3);
    }
    cap = strlen(keys) + (x ? strlen(x->options) : 0) + 2;
    p->spec = cb_calloc(cap, 1);
    if (!p->spec)
        return CB_ENOMEM;
    n = x ? (size_t)snprintf(p->spec, cap, "%s", x->options) : 0;
    for (at = keys; at;) {
        const size_t len = next_pair(&at, &pair);
        if (!cb_begins(pair, "as="))
            n += (size_t)snprintf(p->spec + n, cap - n, "%s%.*s", n ? "," : "", (int)len, pair);
    }
    return CB_OK;
}

static int parse(struct policy *p, const char *keys)
{
    char *at, *comma;

    for (int i = 0; p->m->opts[i].name; i++) {
        const struct method_opt *o = &p->m->opts[i];
        p->val[i] =
            (struct opt_value){ .num = o->def, .text = cb_opt_has_text(o) ? o->choices : NULL };
    }
    if (!keys)
        return CB_OK;
    TRY(expand(p, keys));
    for (at = p->spec; at; at = comma) {
        comma = strchr(at, ',');
        if (comma)
            *comma++ = '\0';
        TRY(set_pair(p, at));
    }
    return CB_OK;
}

static int open_as(const struct method_kind *kind, const struct method *m, void *arg,
                   const char *keys, const struct shape *sh, struct policy **out)
{
    struct policy *p = cb_calloc(1, sizeof *p);
    int n_opt = 0, err;

    if (!p)
        return CB_ENOMEM;
    p->sh = *sh;
    p->kind = kind;
    p->m = m;
    p->arg = arg;
    p->slot_floats = m->slot_floats;
    while (m->opts[n_opt].name)
        n_opt++;
    p->val = cb_calloc((size_t)n_opt + 1, sizeof *p->val);
    err = p->val ? parse(p, keys) : CB_ENOMEM;
    if (err) {
        cb_policy_close(p);
        return err;
    }
    *out = p;
    return CB_OK;
}

static int open_kind(const struct method_kind *kind, const char *spec, const struct shape *sh,
                     struct policy **out)
{
    const char *colon = strchr(spec, ':');
    const struct method *m = NULL;

    const size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
    const struct paper_setting *x = kind == &policies ? cb_paper_setting_find(spec, n, NULL) : NULL;
    char *keys;
    int err;

    if (!x) {
        TRY(find_method(kind, spec, n, &m));
        return open_as(kind, m, NULL, colon ? colon + 1 : NULL, sh, out);
    }
    TRY(find_method(kind, x->method, strlen(x->method), &m));
    keys = cb_calloc(strlen(spec) + 8, 1);
    if (!keys)
        return CB_ENOMEM;
    snprintf(keys, strlen(spec) + 8, "as=%s%s%s", x->name, colon ? "," : "",
             colon ? colon + 1 : "");
    err = open_as(kind, m, NULL, keys, sh, out);
    free(keys);
    return err;
}

int cb_policy_open(const char *spec, const struct shape *sh, struct policy **out)
{
    return open_kind(&policies, spec, sh, out);
}

int cb_policy_open_as(const struct method *m, void *arg, const struct shape *sh,
                      struct policy **out)
{
    return open_as(&policies, m, arg, NULL, sh, out);
}

int cb_prompt_open(const char *spec, const struct shape *sh, struct policy **out)
{
    return open_kind(&prompts, spec, sh, out);
}

int cb_policy_layers(const struct policy *p, int opt, const struct shape *sh, char *mark)
{
    const char *name = p->m->opts[opt].name, *text = p->val[opt].text, *at = text;
    int last = -1;

    for (;;) {
        char *end;
        const long l = strtol(at, &end, 10);
        if (end == at || (*end && *end != '+'))
            return cb_policy_refuse(p, "%s=%s: must be layers joined by +", name, text);
        if (l < 0 || l >= sh->n_layer)
            return cb_policy_refuse(p, "%s=%s: the model has layers 0 to %d", name, text,
                                    sh->n_layer - 1);
        if (l <= last)
            return cb_policy_refuse(p, "%s=%s: must ascend", name, text);
        mark[l] = 1;
        last = (int)l;
        if (!*end)
            return CB_OK;
        at = end + 1;
    }
}

int cb_policy_state(struct policy *p, size_t bytes)
{
    p->state = cb_calloc(1, bytes);
    p->state_bytes = bytes;
    return p->state ? CB_OK : CB_ENOMEM;
}

int cb_policy_budget(struct policy *p, double budget, int prompt, int *share)
{
    if (budget >= 1)
        return cb_keep_budget(budget, 0);
    if (prompt)
        *share = cb_keep_budget(budget, cb_view_seen(p));
    return *share ? *share : cb_policy_refuse(p, "budget=%.10g: a share needs a prompt", budget);
}

int cb_policy_index(const struct policy *p, int l)
{
    if (p->index)
        return p->index[l];
    for (int i = 0; p->sh.at && i < p->sh.n_layer; i++)
        if (p->sh.at[i] == l)
            return i;
    return p->sh.at ? -1 : l;
}

/* The plan in the model's numbers of layers */
static int number_rows(struct policy *p)
{
    const int *at = p->sh.at, n_kv = p->sh.n_kv;
    const size_t n = (size_t)p->sh.n_model_layer;
    int *from, *index;

    p->row = p->plan;
    if (!at)
        return CB_OK;
    p->row = p->rows = cb_calloc(n, sizeof *p->rows);
    index = cb_calloc(n, sizeof *index);
    p->from = cb_calloc(n * (size_t)n_kv, sizeof *p->from);
    for (size_t l = 0; index && l < n; l++)
        index[l] = cb_policy_index(p, (int)l);
    p->index = index;
    if (!p->rows || !index || !p->from)
        return CB_ENOMEM;
    for (size_t l = 0; l < n; l++) {
        const int i = index[l];
        struct layer_plan *row = &p->rows[l];
        row->reads = -1;
        if (i < 0)
            continue;
        *row = p->plan[i];
        row->reads = row->reads < 0 ? -1 : at[row->reads];
        from = p->from + l * (size_t)n_kv;
        for (int kv = 0; row->cross.from && kv < n_kv; kv++)
            from[kv] = at[row->cross.from[kv]];
        row->cross.from = row->cross.from ? from : NULL;
    }
    return CB_OK;
}

int cb_policy_plan(struct policy *p, struct bank *bank)
{
    const size_t n = (size_t)p->sh.n_layer;
    struct layer_plan *plan = cb_calloc(n, sizeof *plan);
    const char *why;

    p->plan = p->planned = plan;
    p->watch = cb_calloc(n, sizeof *p->watch);
    p->layer_state = cb_calloc(n, sizeof *p->layer_state);
    if (!plan || !p->watch || !p->layer_state)
        return CB_ENOMEM;
    p->bank = bank;
    for (size_t l = 0; l < n; l++)
        plan[l].reads = -1;
    for (size_t l = 0; p->m->layer_bytes && l < n; l++)
        if (!(p->layer_state[l] = cb_calloc(1, p->m->layer_bytes)))
            return CB_ENOMEM;
    if (p->sh.selects && !p->m->selected)
        return cb_policy_refuse(p, "the model was trained to read what its own selector names, "
                                   "which this policy would replace; own uses it, and full reads "
                                   "every token");
    if (p->m->plan)
        TRY(p->m->plan(p, &p->sh, plan));
    for (size_t l = 0; p->sh.one_row && l < n; l++)
        if (plan[l].cross.from)
            return cb_policy_refuse(p, "the model stores one row as key and value, so keys cannot "
                                       "be dropped without values");
    if ((why = cb_policy_keep_own(p, plan)))
        return cb_policy_refuse(p, "%s", why);
    cb_policy_clear(p);
    return number_rows(p);
}

void cb_policy_watch(struct policy *p, int l, enum when when)
{
    p->watch[l] = when;
}

void cb_policy_clear(struct policy *p)
{
    for (int l = 0; l < p->sh.n_layer; l++)
        p->watch[l] = p->plan[l].score.when;
    for (int l = 0; p->m->layer_bytes && l < p->sh.n_layer; l++)
        memset(p->layer_state[l], 0, p->m->layer_bytes);
    if (p->state)
        memset(p->state, 0, p->state_bytes);
}

static void mix(XXH3_state_t *x, const double *v, size_t n)
{
    XXH3_64bits_update(x, v, n * sizeof *v);
}

/* A field that came later: where it is not used, the hash is that of before. */
static void mix_field(XXH3_state_t *x, int field, int v)
{
    if (v)
        mix(x, (const double[]){ -field, v }, 2);
}

uint64_t cb_policy_plan_hash(const struct policy *p)
{
    XXH3_state_t x;

    XXH3_64bits_reset(&x);
    for (int l = 0; l < p->sh.n_layer; l++) {
        const struct layer_plan *y = &p->plan[l];
        const struct score_plan *s = &y->score;
        const struct choice_plan *c = &y->choice;
        const struct cross_layer_plan *z = &y->cross;
        const struct sketch_plan *k = &y->sketch;
        const double own[] = { y->reads,     y->rolling,      y->own_slots, y->window, y->late,
                               s->when,      s->window,       s->heads,     s->sums,   s->pool,
                               s->pool_kind, s->sink,         s->band,      c->k,      c->share,
                               c->window,    c->decay,        c->logits,    c->tail,   z->sink,
                               z->recent,    z->recent_after, z->skip,      k->bits,   k->k,
                               k->share,     k->miss,         k->sink,      k->recent };
        mix(&x, own, sizeof own / sizeof *own);
        if (s->future)
            mix(&x, (const double[]){ s->future, s->eps }, 2);
        if (s->squares)
            mix(&x, &(double){ s->squares }, 1);
        if (s->share > 0 || y->narrows)
            mix(&x, (const double[]){ s->share, s->last, y->narrows }, 3);
        if (k->half)
            mix(&x, &(double){ k->half }, 1);
        if (k->page)
            mix(&x, (const double[]){ k->page, k->heads }, 2);
        if (k->columns)
            mix(&x, (const double[]){ k->columns, (double)k->alpha }, 2);
        if (y->repeat.piece)
            mix(&x, (const double[]){ y->repeat.piece, y->repeat.sink }, 2);
        if (y->pair.tail)
            mix(&x, (const double[]){ y->pair.tail, y->pair.t, y->pair.retain }, 3);
        if (y->far.block)
            mix(&x,
                (const double[]){ y->far.block, y->far.k, y->far.reps, y->far.local, y->far.sink,
                                  y->far.chunk },
                6);
        for (int h = 0; z->from && h < p->sh.n_kv; h++)
            mix(&x, &(double){ z->from[h] }, 1);
        mix_field(&x, 1, c->tail > 1 && c->tail_left > 1 ? c->tail_left : 0); /* 0 means 1 */
        mix_field(&x, 2, y->prompt_window);
        mix_field(&x, 3, y->prompt_sink);
        mix_field(&x, 4, y->drop_every);
        mix_field(&x, 5, y->select.on);
        mix_field(&x, 6, y->select.keys);
    }
    return XXH3_64bits_digest(&x);
}

int cb_policy_areas(const struct policy *p, struct area *out)
{
    const size_t n = (size_t)p->sh.n_layer, bytes = p->m->layer_bytes;
    int n_area = 0;

    out[n_area++] = (struct area){ AREA_WATCH, 0, 0, 0, p->watch, n * sizeof *p->watch };
    for (size_t l = 0; bytes && l < n; l++)
        out[n_area++] = (struct area){ AREA_LAYER_STATE, (int)l, 0, 0, p->layer_state[l], bytes };
    if (p->state)
        out[n_area++] = (struct area){ AREA_STATE, 0, 0, 0, p->state, p->state_bytes };
    return n_area;
}

int cb_policy_check(const struct policy *p)
{
    for (int l = 0; l < p->sh.n_layer; l++) {
        const enum when planned = p->plan[l].score.when, now = p->watch[l];
        if (now != planned && (planned != WHEN_STEP || now != WHEN_NEVER))
            return cb_fail(CB_EFORMAT, "the state of its policy is damaged");
    }
    return CB_OK;
}

const struct repeat_plan *cb_policy_repeat(const struct policy *p)
{
    return p->sh.n_layer && p->plan->repeat.piece ? &p->plan->repeat : NULL;
}

/* Columns that a repetition has filled do not change later. */
int cb_policy_remembers(const struct policy *p)
{
    return p->m->observe || (p->slot_floats && !cb_policy_repeat(p)) || p->state;
}

int cb_policy_is_listed(const struct policy *p)
{
    for (int i = 0; p->kind->at(i); i++)
        if (p->kind->at(i) == p->m)
            return 1;
    return 0;
}

void cb_policy_close(struct policy *p)
{
    if (!p)
        return;
    for (int l = 0; p->layer_state && l < p->sh.n_layer; l++)
        free(p->layer_state[l]);
    free(p->layer_state);
    free(p->planned);
    free(p->rows);
    free(p->index);
    free(p->from);
    free(p->watch);
    free(p->val);
    free(p->spec);
    free(p->state);
    free(p->mem);
    free(p);
}
