/* SPDX-License-Identifier: MIT */
/* auto_table.c - measures what settings cost a model. A length has one text, whose last tokens the
 * settings predict, and a few needles; short lengths have more of them, since they cost less. */
#include "auto_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "eval/gen.h"
#include "sample.h"
#include "trial.h"

enum { SHORTEST = 256, LONGEST = 2048, STEPS = 32 };

/* Paces: bench/results/key-value-types.md, "Stored forms of keys and values". */
const struct auto_setting cb_auto_settings[AUTO_SETTINGS] = {
    { "full", NULL, NULL, 1, 0 },
    { "full", "q8_0", "q8_0", 1.6, 0 },
    { "full", "kivi4", "kivi4", 2.6, 0 },
    { "full", "kivi4", "kivi2", 3.2, 0 },
    { "full", "kivi2", "kivi2", 4, 0 },
    { "sieve:budget=auto,miss=0.02", NULL, NULL, 1, 0.1 },
    { "sieve:budget=auto,miss=0.05", NULL, NULL, 1, 0.1 },
    { "sieve:budget=auto,miss=0.1", NULL, NULL, 1, 0.1 },
    { "sieve:budget=auto,miss=0.1,bits=4", NULL, NULL, 1, 0.15 },
    { "sieve:budget=auto,miss=0.2,bits=4", NULL, NULL, 1, 0.15 },
    { "snapkv:budget=0.5", NULL, NULL, 1, 0 },
    { "snapkv:budget=0.25", NULL, NULL, 1, 0 },
    { "snapkv:budget=0.5", "kivi4", "kivi4", 2.6, 0 },
    { "kvzip:budget=0.5", NULL, NULL, 1, 0 },
    { "kvzip:budget=0.25", NULL, NULL, 1, 0 },
    { "streamingllm:budget=0.5", NULL, NULL, 1, 0 },
    { "streamingllm:budget=0.25", NULL, NULL, 1, 0 },
};

struct measure {
    cb_model *model;
    const char *text;
    struct haystack hay;
    const struct cb_prefill *how;
    /* [n] those that the model can have */
    const char *policy[AUTO_SETTINGS], *type_k[AUTO_SETTINGS], *type_v[AUTO_SETTINGS];
    int index[AUTO_SETTINGS]; /* [n] in the table of settings */
    int n;
    struct auto_table *out;
};

static int find_settings(struct measure *x, int n_ctx)
{
    for (int i = 0; i < AUTO_SETTINGS; i++) {
        const struct auto_setting *y = &cb_auto_settings[i];
        const struct cb_session_params p = {
            .n_ctx = n_ctx, .policy = y->policy, .type_k = y->type_k, .type_v = y->type_v
        };
        cb_session *s;
        const int rc = cb_session_open(x->model, &p, &s);
        cb_session_close(s);
        if (rc == CB_ENOMEM)
            return rc;
        x->out->has[i] = !rc;
        if (rc)
            continue;
        x->policy[x->n] = y->policy;
        x->type_k[x->n] = y->type_k;
        x->type_v[x->n] = y->type_v;
        x->index[x->n++] = i;
    }
    return CB_OK;
}

static int count_tokens(void *arg, const char *text, size_t n)
{
    const struct measure *x = arg;
    int32_t *ids;
    int n_ids;

    TRY(cb_tokenize(x->model, text, n, 0, &ids, &n_ids));
    free(ids);
    return n_ids;
}

static int try_text(struct measure *x, struct trial *t, int length)
{
    struct samples s;
    int rc;

    TRY(cb_samples_read(x->model, &x->text, 1, 1, length, length / 2, &s));
    rc = cb_trial_text(t, s.at[0].ids, s.at[0].n, STEPS);
    cb_samples_free(&s);
    return rc;
}

static int try_needles(struct measure *x, struct trial *t, int length, int n)
{
    static const int depth[] = { 35, 65, 10 };
    struct item_list items = { 0 };
    const struct gen g = { .seed = 1,
                           .length = &length,
                           .n_length = 1,
                           .depth = depth,
                           .n_depth = n,
                           .n_needle = 1,
                           .items = 1,
                           .haystack = &x->hay,
                           .reserve = 1, /* BOS */
                           .count = count_tokens,
                           .arg = x };
    int rc = cb_gen_needle(&g, &items);

    for (int i = 0; i < items.n && !rc; i++)
        rc = cb_trial_item(t, &items.at[i]);
    cb_item_list_free(&items);
    return rc;
}

static int measure_length(struct measure *x, int length, int n_needle)
{
    const int i = x->out->n_length;
    struct verdict of[AUTO_SETTINGS] = { 0 };
    struct trial t = { .model = x->model,
                       .policy = x->policy,
                       .type_k = x->type_k,
                       .type_v = x->type_v,
                       .n = x->n,
                       .n_ctx = length + TRIAL_STEPS,
                       .how = x->how,
                       .of = of };
    int rc = try_text(x, &t, length);

    if (!rc)
        rc = try_needles(x, &t, length, n_needle);
    cb_trial_free(&t);
    TRY(rc);
    x->out->length[i] = length;
    x->out->n_right[i] = t.n_right;
    for (int k = 0; k < x->n; k++)
        x->out->cost[x->index[k]][i] = (struct auto_cost){ .kl = of[k].kl / t.n_token,
                                                           .kept = of[k].kept / t.n_feed,
                                                           .read = of[k].read / t.n_feed,
                                                           .held = of[k].held };
    x->out->n_length = i + 1;
    return CB_OK;
}

int cb_auto_measure(cb_model *m, const char *text, int most_ctx, double patience_s,
                    const struct cb_prefill *how, struct auto_table *out)
{
    const double start = cb_now_s();
    const int most = most_ctx - TRIAL_STEPS < LONGEST ? most_ctx - TRIAL_STEPS : LONGEST;
    struct measure x = { .model = m, .text = text, .how = how, .out = out };
    int rc;

    *out = (struct auto_table){ 0 };
    if (most < SHORTEST)
        return cb_fail(CB_EARG, "auto: a context of %d tokens is too short to measure", most_ctx);
    TRY(cb_haystack_read(text, &x.hay));
    rc = find_settings(&x, most + TRIAL_STEPS);
    for (int i = 0; i < AUTO_LENGTHS && !rc; i++) {
        const int length = most >> (AUTO_LENGTHS - 1 - i);
        if (length < SHORTEST)
            continue;
        rc = measure_length(&x, length, AUTO_LENGTHS - i);
        /* the next length takes about one and a half times as long */
        if (2.5 * (cb_now_s() - start) > patience_s)
            break;
    }
    cb_haystack_free(&x.hay);
    out->seconds = cb_now_s() - start;
    return rc;
}

double cb_auto_loss(const struct auto_table *t, int i)
{
    double worst = 0;

    if (!t->has[i])
        return INFINITY;
    for (int k = 0; k < t->n_length; k++) {
        if (t->cost[i][k].held < t->n_right[k])
            return INFINITY;
        worst = fmax(worst, t->cost[i][k].kl);
    }
    return worst;
}

double cb_auto_time(const struct auto_table *t, int i, int n, double kept)
{
    const struct auto_setting *y = &cb_auto_settings[i];
    const int last = t->n_length - 1;
    const double read = t->cost[i][last].read;
    const double trend = last ? fmin(1, read / t->cost[i][last - 1].read) : 1;

    if (!(y->search > 0))
        return y->pace * kept;
    return y->search + read * pow(trend, fmax(0, log2((double)n / t->length[last])));
}

/* ---- as JSON ---- */

static const char *named(const char *type)
{
    return type ? type : "f16";
}

json_t *cb_auto_to_json(const struct auto_table *t)
{
    json_t *rows = json_array(), *lengths = json_array();

    for (int k = 0; k < t->n_length; k++)
        cb_json_add(&lengths,
                    json_pack("{s:i, s:i}", "tokens", t->length[k], "needles", t->n_right[k]));
    for (int i = 0; i < AUTO_SETTINGS; i++) {
        json_t *at = json_array();
        for (int k = 0; k < t->n_length && t->has[i]; k++) {
            const struct auto_cost *c = &t->cost[i][k];
            cb_json_add(&at, json_pack("{s:o, s:f, s:f, s:i}", "kl", cb_json_real(c->kl), "kept",
                                       c->kept, "read", c->read, "needles", c->held));
        }
        cb_json_add(&rows, json_pack("{s:s, s:s, s:s, s:o}", "policy", cb_auto_settings[i].policy,
                                     "type_k", named(cb_auto_settings[i].type_k), "type_v",
                                     named(cb_auto_settings[i].type_v), "at", at));
    }
    return json_pack("{s:i, s:f, s:o, s:o}", "version", 1, "seconds", t->seconds, "lengths",
                     lengths, "settings", rows);
}

static int read_setting(const json_t *row, struct auto_table *t, int i)
{
    const struct auto_setting *y = &cb_auto_settings[i];
    const char *policy = json_string_value(json_object_get(row, "policy"));
    const char *type_k = json_string_value(json_object_get(row, "type_k"));
    const char *type_v = json_string_value(json_object_get(row, "type_v"));
    const json_t *at = json_object_get(row, "at");

    if (!policy || !type_k || !type_v || strcmp(policy, y->policy) ||
        strcmp(type_k, named(y->type_k)) || strcmp(type_v, named(y->type_v)))
        return CB_EFORMAT;
    t->has[i] = json_array_size(at) > 0;
    for (int k = 0; k < t->n_length && t->has[i]; k++) {
        struct auto_cost *c = &t->cost[i][k];
        json_t *x = json_array_get(at, (size_t)k);
        TRY(cb_json_unpack(x, "{s:F, s:F, s:F, s:i}", "kl", &c->kl, "kept", &c->kept, "read",
                           &c->read, "needles", &c->held));
    }
    return CB_OK;
}

int cb_auto_from_json(const json_t *j, struct auto_table *out)
{
    const json_t *lengths = json_object_get(j, "lengths"), *rows = json_object_get(j, "settings");
    const size_t n = json_array_size(lengths);

    *out = (struct auto_table){ 0 };
    if (json_integer_value(json_object_get(j, "version")) != 1 || n < 1 || n > AUTO_LENGTHS ||
        json_array_size(rows) != AUTO_SETTINGS)
        return cb_fail(CB_EFORMAT, "figures of auto: of another version");
    out->n_length = (int)n;
    out->seconds = json_number_value(json_object_get(j, "seconds"));
    for (size_t k = 0; k < n; k++) {
        const int rc = cb_json_unpack(json_array_get(lengths, k), "{s:i, s:i}", "tokens",
                                      &out->length[k], "needles", &out->n_right[k]);
        if (rc)
            return rc == CB_EFORMAT ? cb_fail(rc, "figures of auto: a length is damaged") : rc;
    }
    for (int i = 0; i < AUTO_SETTINGS; i++) {
        const int rc = read_setting(json_array_get(rows, (size_t)i), out, i);
        if (rc)
            return rc == CB_EFORMAT ? cb_fail(rc, "figures of auto: setting %d is damaged", i + 1)
                                    : rc;
    }
    return CB_OK;
}
