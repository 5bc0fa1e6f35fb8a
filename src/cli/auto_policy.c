/* SPDX-License-Identifier: MIT */
/* auto_policy.c - --policy auto[:memory=BYTES|share=S][:loss=E]: chooses a policy and the type of
 * keys and values for a model, a context and limits, by figures that are measured once for each
 * model and kept in the user's cache. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json_lenient.h"
#include "base/new_file.h"
#include "base/number.h"
#include "base/words.h"
#include "calibrate/auto_table.h"
#include "cli/output/log.h"
#include "cmd.h"
#include "eval/data.h"

enum { SHORT_CTX = 4096, FIGURES_MOST = 1 << 20 }; /* tokens; bytes of a file of figures */

static const double PATIENCE_S = 120; /* no further length is measured where it would take longer */

/* ---- what is asked for ---- */

struct limits {
    uint64_t memory; /* bytes that keys and values may take; 0: any */
    double share;    /* of the full cache's bytes; 0: any */
    double loss;     /* mean KL divergence of a token, nats */
};

int cb_auto_is(const char *policy)
{
    return policy && cb_begins(policy, "auto") && (!policy[4] || policy[4] == ':');
}

/* A number with a suffix of bytes: 500M, 1.5G */
static int read_bytes(const char *text, uint64_t *out)
{
    static const char suffix[] = "kKmMgGtT";
    char *end;
    double v = cb_number(text, &end);
    const char *at = *end ? strchr(suffix, *end) : NULL;

    if (at) {
        v = ldexp(v, 10 * (1 + (int)(at - suffix) / 2));
        end++;
    }
    if (end == text || *end || !(v >= 1 && v < 1e18))
        return cb_usage("--policy auto: memory=%s: not a number of bytes such as 500M", text);
    *out = (uint64_t)v;
    return CB_OK;
}

static int read_real(const char *key, const char *text, double most, double *out)
{
    char *end;
    const double v = cb_number(text, &end);

    if (end == text || *end || !(v > 0 && v <= most))
        return cb_usage("--policy auto: %s=%s: not a number above 0 and up to %g", key, text, most);
    *out = v;
    return CB_OK;
}

static int read_limit(char *word, struct limits *out)
{
    char *value = strchr(word, '=');

    if (value)
        *value++ = '\0';
    if (value && !strcmp(word, "memory"))
        return read_bytes(value, &out->memory);
    if (value && !strcmp(word, "share"))
        return read_real("share", value, 1, &out->share);
    if (value && !strcmp(word, "loss"))
        return read_real("loss", value, 100, &out->loss);
    return cb_usage("--policy auto: '%s': it takes memory=BYTES or share=S, and loss=E", word);
}

static int read_limits(const char *policy, struct limits *out)
{
    char text[160], *rest = text, *word;

    *out = (struct limits){ .loss = 0.01 };
    if (snprintf(text, sizeof text, "%s", policy + 4) >= (int)sizeof text)
        return cb_usage("--policy auto: too long");
    while ((word = strsep(&rest, ":,")))
        if (*word)
            TRY(read_limit(word, out));
    if (out->memory && out->share > 0)
        return cb_usage("--policy auto: memory= and share= exclude each other");
    return CB_OK;
}

int cb_auto_check(const char *policy)
{
    struct limits limits;

    return read_limits(policy, &limits);
}

/* ---- the figures ---- */

/* Figures belong to weights, and a file's size tells quantisations apart. NULL: there is no place
 * for them */
static const char *figures_path(const struct engine *e, char *path, size_t size)
{
    char folder[PATH_MAX];

    if (!cb_user_cache("auto", folder, sizeof folder) ||
        snprintf(path, size, "%s/%016" PRIx64 "-%" PRIu64 ".json", folder, e->info.fingerprint,
                 e->info.file_bytes) >= (int)size)
        return NULL;
    return path;
}

static int load_figures(const char *path, struct auto_table *out)
{
    struct buf text = { 0 };
    int rc = cb_file_read_plain(path, FIGURES_MOST, &text);
    json_t *j = NULL;

    if (!rc)
        rc = cb_json_parse(text.s, text.n, path, &j);
    if (!rc)
        rc = cb_auto_from_json(j, out);
    json_decref(j);
    cb_buf_free(&text);
    return rc;
}

/* They are measured again next time if they cannot be kept. */
static void save_figures(const char *path, const struct auto_table *t)
{
    json_t *j = cb_auto_to_json(t);
    char *text = j ? cb_json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;

    if (!text || cb_new_file_save(path, text, strlen(text)))
        cb_log_note("auto: the figures cannot be kept: %s", text ? cb_error() : "no memory");
    free(text);
    json_decref(j);
}

static int on_progress(void *arg, int64_t done, int64_t total)
{
    cb_progress_step(arg, done, total);
    return cb_interrupted();
}

static int measure(const struct opts *o, struct engine *e, struct auto_table *out)
{
    struct progress bar;
    const struct cb_prefill how = { .progress = on_progress, .progress_arg = &bar };
    char text[PATH_MAX];
    int rc;

    TRY(cb_data_find("blue-carbuncle.txt", text, sizeof text));
    cb_log_note("auto: measuring what policies cost this model; once, about a minute for a small "
                "one");
    cb_progress_start(&bar, cb_progress_when(o), "auto", "tokens");
    rc = cb_auto_measure(e->model, text, e->info.n_ctx_train, PATIENCE_S, &how, out);
    cb_progress_end(&bar);
    return rc;
}

static int get_figures(const struct opts *o, struct engine *e, struct auto_table *out)
{
    char place[PATH_MAX];
    const char *path = figures_path(e, place, sizeof place);

    if (path && !load_figures(path, out))
        return CB_OK;
    TRY(measure(o, e, out));
    if (path)
        save_figures(path, out);
    return CB_OK;
}

/* ---- the choice ---- */

struct candidate {
    int i;           /* of the settings */
    uint64_t bytes;  /* most that keys and values take, planned for the whole context */
    double time;     /* of attention, at the end of the context / the full cache's */
    double loss, kl; /* kl: also where a needle is missed */
    int missed;      /* needles, of all lengths */
};

static struct cb_session_params params_of(const struct cb_session_params *base, int i)
{
    struct cb_session_params p = *base;

    p.policy = cb_auto_settings[i].policy;
    if (cb_auto_settings[i].type_k) {
        p.type_k = cb_auto_settings[i].type_k;
        p.type_v = cb_auto_settings[i].type_v;
    }
    return p;
}

/* A prompt that fills the context, and the most bytes of contexts of which half, and all but one
 * token, are generated: some policies keep every generated token */
static int plan_all(cb_session *s, struct cb_memory *out)
{
    const int n = cb_session_n_ctx(s), prompt[] = { n - n / 2, 1 };
    struct cb_memory m;

    TRY(cb_session_plan(s, n, 0, out));
    for (int k = 0; k < 2; k++) {
        TRY(cb_session_plan(s, prompt[k], n - prompt[k], &m));
        if (m.kv_peak_bytes > out->kv_peak_bytes)
            out->kv_peak_bytes = m.kv_peak_bytes;
    }
    return CB_OK;
}

/* 0: the session cannot be had, as with a form of prefill that excludes it */
static int plan_of(const struct engine *e, const struct cb_session_params *base, int i,
                   struct cb_memory *out)
{
    const struct cb_session_params p = params_of(base, i);
    cb_session *s;
    int ok = !cb_session_open(e->model, &p, &s);

    if (ok)
        ok = !plan_all(s, out);
    cb_session_close(s);
    return ok;
}

static void rate(const struct auto_table *t, struct candidate *c, int n_ctx, double kept)
{
    c->loss = cb_auto_loss(t, c->i);
    c->time = cb_auto_time(t, c->i, n_ctx, kept);
    for (int k = 0; k < t->n_length; k++) {
        c->kl = fmax(c->kl, t->cost[c->i][k].kl);
        c->missed += t->n_right[k] - t->cost[c->i][k].held;
    }
}

/* The fastest of those that lose little enough; where none does, the least loss */
static int is_better(const struct candidate *a, const struct candidate *b, double loss)
{
    const int a_ok = a->loss <= loss, b_ok = b->loss <= loss;

    if (a_ok != b_ok)
        return a_ok;
    if (a_ok)
        return a->time < b->time;
    return a->missed != b->missed ? a->missed < b->missed : a->kl < b->kl;
}

static int is_allowed(const struct opts *o, int i)
{
    const int typed = cb_opt_set(o, ARG_TYPE_K) || cb_opt_set(o, ARG_TYPE_V);
    return !cb_auto_settings[i].type_k || !typed;
}

static void note_choice(const struct auto_table *t, const struct candidate *c, int n_ctx,
                        const struct cb_memory *full, const struct limits *limit)
{
    const struct auto_setting *y = &cb_auto_settings[c->i];
    char types[64] = "";
    int n_needle = 0;

    if (y->type_k)
        snprintf(types, sizeof types, ", keys %s, values %s", y->type_k, y->type_v);
    for (int k = 0; k < t->n_length; k++)
        n_needle += t->n_right[k];
    cb_log_note(
        "auto: %s%s for %d tokens: at most %.0f %% of the full cache's bytes, attention "
        "takes about %.0f %% of its time; measured at %d to %d tokens: KL %.4f, %d of %d "
        "needles%s",
        y->policy, types, n_ctx, 100 * (double)c->bytes / (double)full->kv_bytes, 100 * c->time,
        t->length[0], t->length[t->n_length - 1], c->kl, n_needle - c->missed, n_needle,
        c->loss <= limit->loss ? "" : "; nothing within the limits loses as little as asked");
}

/* Many contexts may follow each other: 1: the user has not been told of this choice */
static int is_news(struct engine *e, int choice)
{
    const unsigned bit = 1u << choice, old = e->noted & bit;

    e->noted |= bit;
    return !old;
}

static int choose(const struct opts *o, struct engine *e, const struct limits *limit,
                  const struct auto_table *t, struct cb_session_params *p)
{
    struct cb_memory full, m;
    struct candidate best = { .i = -1 };
    uint64_t most, least = UINT64_MAX;

    if (!plan_of(e, p, 0, &full))
        return cb_fail_in(CB_EUNSUPPORTED, "auto");
    most = limit->memory      ? limit->memory
           : limit->share > 0 ? (uint64_t)(limit->share * (double)full.kv_full_bytes)
                              : UINT64_MAX;
    for (int i = 0; i < AUTO_SETTINGS; i++) {
        struct candidate c = { .i = i };
        if (!t->has[i] || !is_allowed(o, i) || !plan_of(e, p, i, &m))
            continue;
        c.bytes = m.kv_peak_bytes;
        least = c.bytes < least ? c.bytes : least;
        rate(t, &c, p->n_ctx, (double)m.kv_bytes / (double)full.kv_bytes);
        if (c.bytes <= most && (best.i < 0 || is_better(&c, &best, limit->loss)))
            best = c;
    }
    if (best.i < 0)
        return cb_fail(CB_EARG,
                       "auto: %d tokens take at least %" PRIu64 " bytes; memory= or share= allows "
                       "%" PRIu64,
                       p->n_ctx, least, most);
    if (is_news(e, best.i))
        note_choice(t, &best, p->n_ctx, &full, limit);
    *p = params_of(p, best.i);
    return CB_OK;
}

int cb_auto_choose(const struct opts *o, struct engine *e, struct cb_session_params *p)
{
    struct limits limit;
    struct auto_table t;

    if (!p->n_ctx)
        p->n_ctx = e->info.n_ctx_train;
    TRY(read_limits(p->policy, &limit));
    p->policy = e->info.policy;
    if (strcmp(p->policy, "full")) {
        cb_log_note("auto: %s, since the model was trained with its own selector", p->policy);
        return CB_OK;
    }
    if (p->n_ctx < SHORT_CTX && !limit.memory && !(limit.share > 0)) {
        if (is_news(e, AUTO_SETTINGS))
            cb_log_note("auto: full, since contexts of fewer than %d tokens gain little",
                        SHORT_CTX);
        return CB_OK;
    }
    TRY(get_figures(o, e, &t));
    return choose(o, e, &limit, &t, p);
}
