/* SPDX-License-Identifier: MIT */
/* calibrate_trial.c - tries the candidates of an analysis on its texts and on generated needle
 * items. */
#include "calibrate_trial.h"
#include "eval/data.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/output/log.h"

/* Retrieval tasks that show which layers look back: one needle, of numbers and of letters; one of
 * many; and several in one answer. */
static const char *const tasks[] = { "niah_single_2",   "niah_single_3",   "niah_multikey_1",
                                     "niah_multikey_2", "niah_multivalue", "niah_multiquery" };
enum { N_TASK = (int)(sizeof tasks / sizeof *tasks) };

int cb_trials_budget(const struct calibrate *c, int part)
{
    const int given = cb_opt_set(c->o, ARG_CAL_BUDGET);
    return given ? cb_opt_int(c->o, ARG_CAL_BUDGET) : c->n_ctx / part;
}

/* ---- items ---- */

static int count_tokens(void *arg, const char *text, size_t n)
{
    const struct calibrate *c = arg;
    int32_t *ids;
    int n_ids, rc;

    if (cb_interrupted())
        return cb_fail(CB_ECANCEL, "stopped");
    rc = cb_tokenize(c->e.model, text, n, 0, &ids, &n_ids);
    if (rc)
        return rc;
    free(ids);
    return n_ids;
}

static const struct ruler_task *find_task(const char *name)
{
    const struct ruler_task *t = NULL;

    for (int i = 0; (t = cb_ruler_at(i)) && strcmp(cb_ruler_name(t), name);)
        i++;
    return t;
}

/* Makes n items, shared among the tasks as evenly as possible. */
static int make_items(struct trials *t, struct calibrate *c, uint64_t seed, int n,
                      struct item_list *out)
{
    const int length = c->n_ctx - 1; /* BOS */
    struct gen g = { .seed = seed,
                     .length = &length,
                     .n_length = 1,
                     .haystack = &t->hay,
                     .count = count_tokens,
                     .arg = c };

    for (int i = 0; i < N_TASK; i++) {
        g.items = n / N_TASK + (i < n % N_TASK);
        if (g.items)
            TRY(cb_gen_ruler(&g, find_task(tasks[i]), out));
    }
    return CB_OK;
}

/* n needles at each of four lengths and five depths */
static int make_grid(struct trials *t, struct calibrate *c, uint64_t seed, int n,
                     struct item_list *out)
{
    static const int depth[] = { 0, 25, 50, 75, 100 };
    const int most = c->n_ctx - 1; /* BOS */
    const int length[] = { most / 4, most / 2, most - most / 4, most };
    const struct gen g = { .seed = seed,
                           .length = length,
                           .n_length = 4,
                           .depth = depth,
                           .n_depth = 5,
                           .n_needle = 1,
                           .items = n,
                           .haystack = &t->hay,
                           .count = count_tokens,
                           .arg = c };

    return cb_gen_needle(&g, out);
}

static int read_haystack(struct trials *t, const struct opts *o)
{
    char path[PATH_MAX];
    const char *given = cb_opt_text(o, ARG_CAL_FILE);
    const size_t n = given ? strlen(given) : 0;

    if (n && (n < 6 || strcmp(given + n - 6, ".jsonl")))
        return cb_haystack_read(given, &t->hay);
    TRY(cb_data_find("blue-carbuncle.txt", path, sizeof path));
    return cb_haystack_read(path, &t->hay);
}

static enum trial_rule rule_of(const struct opts *o, enum trial_rule usual)
{
    static const char *const name[] = {
        [KEEP_TOKENS] = "tokens", [KEEP_ANSWERS] = "answers", [KEEP_GRID] = "grid"
    };
    const char *given = cb_opt_text(o, ARG_CAL_RULE);

    for (int i = 0; given && i <= KEEP_GRID; i++)
        if (!strcmp(given, name[i]))
            return (enum trial_rule)i;
    return usual;
}

int cb_trials_open(struct trials *t, struct calibrate *c, enum trial_rule usual)
{
    const struct opts *o = c->o;
    const uint64_t seed = (uint64_t)cb_opt_int64(o, ARG_CAL_SEED);
    const enum trial_rule rule = rule_of(o, usual);
    const int n =
        rule == KEEP_GRID && !cb_opt_set(o, ARG_CAL_ITEMS) ? 2 : cb_opt_int(o, ARG_CAL_ITEMS);

    *t = (struct trials){ .rule = rule, .keep = rule == KEEP_GRID ? 0.99 : 0.98 };
    if (cb_opt_set(o, ARG_CAL_KEEP))
        t->keep = cb_opt_real(o, ARG_CAL_KEEP) / 100;
    if (!n)
        return CB_OK;
    TRY(read_haystack(t, o));
    TRY(make_items(t, c, seed + 1, N_TASK, &t->probe));
    return rule == KEEP_GRID ? make_grid(t, c, seed, n, &t->items)
                             : make_items(t, c, seed, n, &t->items);
}

void cb_trials_close(struct trials *t)
{
    cb_trial_free(&t->t);
    free(t->t.of);
    cb_haystack_free(&t->hay);
    cb_item_list_free(&t->probe);
    cb_item_list_free(&t->items);
}

/* ---- runs ---- */

/* Adds the items' prompts, each followed by its answer, to the samples. */
static int add_probe_items(struct trials *t, struct calibrate *c)
{
    const int n = t->probe.n;
    struct sample *at =
        cb_realloc(c->samples.at, (size_t)(c->samples.n + n + 1), sizeof *c->samples.at);

    if (!at)
        return CB_ENOMEM;
    c->samples.at = at;
    for (int i = 0; i < n; i++) {
        const struct item *it = &t->probe.at[i];
        struct buf b = { 0 };
        struct sample x;
        char *text;
        int err;
        cb_buf_print(&b, "%s%s %s.", it->context, it->question, it->answer[0]);
        text = cb_buf_take(&b);
        err = text ? cb_tokenize(c->e.model, text, strlen(text), CB_TOK_BOS, &x.ids, &x.n)
                   : CB_ENOMEM;
        free(text);
        TRY(err);
        c->samples.at[c->samples.n++] = x;
    }
    return CB_OK;
}

int cb_trials_probe(struct trials *t, struct calibrate *c, const struct probe *p, int n_step)
{
    const int n_text = c->samples.n;
    const int64_t more = (int64_t)(n_text + t->items.n) * c->n_ctx;
    int err = add_probe_items(t, c);

    if (!err)
        err = cb_calibrate_probe(c, p, n_step, more);
    while (c->samples.n > n_text)
        free(c->samples.at[--c->samples.n].ids);
    return err;
}

int cb_trials_run(struct trials *t, struct calibrate *c, const char *const *policy, int n,
                  int n_step)
{
    int err = CB_OK;

    t->t = (struct trial){ .model = c->e.model,
                           .policy = policy,
                           .n = n,
                           .n_ctx = c->n_ctx + TRIAL_STEPS,
                           .how = &c->how };
    t->t.of = cb_calloc((size_t)n, sizeof *t->t.of);
    if (!t->t.of)
        return CB_ENOMEM;
    for (int i = 0; i < c->samples.n && !err; i++) {
        err = cb_trial_text(&t->t, c->samples.at[i].ids, c->samples.at[i].n, n_step);
        cb_calibrate_fed(c, c->n_ctx);
    }
    for (int i = 0; i < t->items.n && !err; i++) {
        err = cb_trial_item(&t->t, &t->items.at[i]);
        cb_calibrate_fed(c, c->n_ctx);
    }
    cb_progress_end(&c->bar);
    t->t.policy = NULL; /* owned by the caller */
    return err;
}

/* ---- results ---- */

static double held(const struct trials *t, int i)
{
    const struct verdict *v = &t->t.of[i];
    return t->t.n_right && t->rule != KEEP_TOKENS ? (double)v->held / t->t.n_right
                                                  : (double)v->same / t->t.n_token;
}

/* Does candidate i keep enough? If the full cache has no right answers, predictions are compared.
 */
static int trials_keeps(const struct trials *t, int i)
{
    return held(t, i) >= t->keep;
}

int cb_trials_choose(const struct trials *t, int n)
{
    int best = 0;

    for (int i = 0; i < n; i++) {
        if (trials_keeps(t, i))
            return i;
        best = held(t, i) > held(t, best) ? i : best;
    }
    cb_log_note("none of them keeps %g %%: the one that keeps most is chosen", 100 * t->keep);
    return best;
}

const char *cb_trials_mark(const struct trials *t, int i, int chosen)
{
    return i != chosen ? "" : trials_keeps(t, i) ? "chosen" : "chosen: none keeps enough";
}

json_t *cb_trials_row(const struct trials *t, int i)
{
    const struct verdict *v = &t->t.of[i];

    return json_pack("{s:i, s:i, s:f, s:f, s:f}", "held", v->held, "answered", t->t.n_right,
                     "same_token", (double)v->same / t->t.n_token, "kld", v->kl / t->t.n_token,
                     "read_share", v->read / t->t.n_feed);
}

void cb_trials_print(const struct trials *t, int i)
{
    const struct verdict *v = &t->t.of[i];

    printf("%d of %d | %.3f | %.4f | %.1f %%", v->held, t->t.n_right,
           (double)v->same / t->t.n_token, v->kl / t->t.n_token, 100 * v->read / t->t.n_feed);
}

void cb_trials_made(const struct trials *t, int chosen, json_t **made)
{
    cb_json_set(made, "needles", json_integer(t->items.n));
    cb_json_set(made, "keep", json_real(t->keep));
    cb_json_set(made, "kept", json_boolean(trials_keeps(t, chosen)));
    cb_json_set(made, "trial", cb_trials_row(t, chosen));
}
