/* SPDX-License-Identifier: MIT */
/* eval_attention.c - ctxbank eval attention, lazy: a text is fed to a session that keeps
 * everything, its last tokens one by one. Their attention is compared with what policies read, or
 * mapped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "base/new_file.h"
#include "calibrate/coverage.h"
#include "calibrate/row_stats.h"
#include "cli/cmd.h"
#include "cli/output/chart.h"
#include "cli/output/csv.h"

/* ---- a text ---- */

struct text {
    const struct opts *o;
    struct engine e;
    char who[160]; /* the model's name and quantisation */
    int32_t *ids;  /* [n] */
    int n, n_step; /* the last n_step tokens are fed one by one */
    struct progress bar;
    struct cb_prefill how;
    int64_t done, total; /* tokens, for the bar */
};

static int on_progress(void *arg, int64_t done, int64_t total)
{
    struct text *t = arg;

    (void)total;
    cb_progress_step(&t->bar, t->done + done, t->total);
    return cb_interrupted();
}

static int text_read(struct text *t)
{
    const struct opts *o = t->o;
    int most = cb_opt_int(o, ARG_MEASURE_CTX), rc;
    struct buf b;

    if (!cb_opt_set(o, ARG_MEASURE_CTX))
        most = min_int(most, t->e.info.n_ctx_train);
    TRY(cb_read_file(cb_opt_text(o, ARG_PPL_FILE), &b));
    rc = cb_tokenize(t->e.model, b.s, b.n, CB_TOK_BOS, &t->ids, &t->n);
    cb_buf_free(&b);
    TRY(rc);
    t->n = min_int(t->n, most);
    t->n_step = min_int(cb_opt_int(o, ARG_MEASURE_STEPS), t->n - 1);
    return t->n_step > 0 ? CB_OK
                         : cb_fail(CB_EARG, "%s: %d tokens; there is nothing to measure",
                                   cb_opt_text(o, ARG_PPL_FILE), t->n);
}

static int text_open(const struct opts *o, struct text *t)
{
    *t = (struct text){ .o = o };
    t->how = (struct cb_prefill){ .progress = on_progress, .progress_arg = t };
    if (!cb_opt_set(o, ARG_PPL_FILE))
        return cb_usage("-f FILE: none given");
    cb_interrupt_catch();
    TRY(cb_new_file_check(cb_opt_text(o, ARG_MEASURE_PLOT))); /* before the work, not after it */
    TRY(cb_engine_open(o, &t->e));
    snprintf(t->who, sizeof t->who, "%.120s %.30s", t->e.info.name, t->e.info.quant);
    return text_read(t);
}

static void text_close(struct text *t)
{
    free(t->ids);
    cb_engine_close(&t->e);
}

static json_t *list_of(const double *x, int n)
{
    json_t *a = json_array();

    for (int i = 0; i < n; i++)
        cb_json_add(&a, cb_json_real(x[i]));
    return a;
}

/* ---- eval attention: feeding ---- */

struct seat {
    const char *policy;
    cb_session *s;
    struct coverage c;
};

struct work {
    struct text *t;
    struct full_rows full;
    struct probe probe;
    cb_session *lead;  /* the probe's */
    int from, to;      /* tokens of --passage; to 0: there is none */
    struct seat *seat; /* [n] */
    int n;
};

/* The first token that holds a byte of s, and the one after the last that does */
static int find_tokens(const struct text *t, const char *s, int *from, int *to)
{
    size_t *end = cb_calloc((size_t)t->n, sizeof *end); /* of each token's bytes */
    struct buf all = { 0 };
    const char *at;
    int err = end ? CB_OK : CB_ENOMEM;

    for (int i = 0; i < t->n && !err; i++) {
        char bytes[256];
        const int n = cb_token_bytes(t->e.model, t->ids[i], 0, bytes, sizeof bytes);
        cb_buf_add(&all, bytes, (size_t)min_int(n, (int)sizeof bytes));
        end[i] = all.n;
    }
    at = !err && all.s && *s ? memmem(all.s, all.n, s, strlen(s)) : NULL;
    if (!err && !at)
        err = all.failed
                  ? CB_ENOMEM
                  : cb_usage("--passage: the text has no '%.60s' in its first %d tokens", s, t->n);
    for (*from = 0; at && end[*from] <= (size_t)(at - all.s);)
        ++*from;
    for (*to = *from; at && (*to == 0 || end[*to - 1] < (size_t)(at - all.s) + strlen(s));)
        ++*to;
    cb_buf_free(&all);
    free(end);
    return err;
}

static int open_seats(struct work *w)
{
    struct text *t = w->t;
    const char *const *policy = cb_engine_policies(t->o, &t->e, &w->n);

    if (cb_opt_set(t->o, ARG_PASSAGE))
        TRY(find_tokens(t, cb_opt_text(t->o, ARG_PASSAGE), &w->from, &w->to));
    w->probe = (struct probe){ cb_full_rows_look, &w->full, 0 };
    w->seat = cb_calloc((size_t)w->n, sizeof *w->seat);
    if (!w->seat)
        return CB_ENOMEM;
    TRY(cb_full_rows_open(&w->full, t->e.model, t->n));
    TRY(cb_probe_open(t->e.model, &w->probe, t->n, &w->lead));
    for (int i = 0; i < w->n; i++) {
        struct cb_session_params p;
        struct seat *x = &w->seat[i];
        TRY(cb_engine_params(t->o, &t->e, policy[i], t->n, &p));
        x->policy = policy[i];
        TRY(cb_session_open(t->e.model, &p, &x->s));
        TRY(cb_coverage_open(&x->c, t->e.model, &w->full, t->n_step));
        x->c.from = w->from;
        x->c.to = w->to;
    }
    return CB_OK;
}

static void close_seats(struct work *w)
{
    for (int i = 0; w->seat && i < w->n; i++) {
        cb_session_close(w->seat[i].s);
        cb_coverage_close(&w->seat[i].c);
    }
    free(w->seat);
    cb_session_close(w->lead);
    cb_full_rows_close(&w->full);
}

/* Policies whose prompt is dense take it from the probe's session; the others have their own. */
static int feed_prompt(struct work *w)
{
    struct text *t = w->t;
    cb_session **follower = cb_calloc((size_t)w->n, sizeof *follower);
    const int n = t->n - t->n_step;
    int n_follower = 0, rc;

    if (!follower)
        return CB_ENOMEM;
    for (int i = 0; i < w->n; i++)
        if (cb_session_can_follow(w->seat[i].s, w->lead))
            follower[n_follower++] = w->seat[i].s;
    t->total = (int64_t)n * (1 + w->n - n_follower) + t->n_step;
    rc = cb_session_prefill_shared(w->lead, follower, NULL, n_follower, t->ids, n, &t->how);
    t->done += n;
    for (int i = 0; i < w->n && !rc; i++)
        if (!cb_session_len(w->seat[i].s)) {
            rc = cb_session_prefill(w->seat[i].s, t->ids, n, &t->how);
            t->done += n;
        }
    free(follower);
    return rc;
}

static int feed_steps(struct work *w)
{
    struct text *t = w->t;

    for (int i = 0; i < w->n; i++)
        cb_coverage_watch(&w->seat[i].c, w->seat[i].s);
    for (int i = t->n - t->n_step; i < t->n; i++) {
        if (on_progress(t, 0, 0))
            return CB_ECANCEL;
        TRY(cb_session_decode(w->lead, t->ids[i]));
        for (int k = 0; k < w->n; k++)
            TRY(cb_session_decode(w->seat[k].s, t->ids[i]));
        t->done++;
    }
    return CB_OK;
}

/* ---- eval attention: the table ---- */

/* The coverage of layer l and KV head kv; below 0, of all layers or heads */
static struct cover cover_of(const struct work *w, int i, int l, int kv)
{
    const struct coverage *c = &w->seat[i].c;

    return cb_coverage_mean(c, max_int(l, 0), l < 0 ? w->full.n_layer : 1, max_int(kv, 0),
                            kv < 0 ? c->n_kv : 1);
}

static void print_md(const struct work *w)
{
    printf("| policy | layer | read | read %% | recall %% | best %% | overlap %% |%s\n"
           "| --- | --- | --- | --- | --- | --- | --- |%s\n",
           w->to ? " hit %% | best hit %% | found %% |" : "", w->to ? " --- | --- | --- |" : "");
    for (int i = 0; i < w->n; i++)
        for (int l = 0; l <= w->full.n_layer; l++) {
            const int all = l == w->full.n_layer;
            const struct cover x = cover_of(w, i, all ? -1 : l, -1);
            char name[16];
            snprintf(name, sizeof name, "%d", l);
            printf("| %s | %s | %.1f | %.1f | %.2f | %.2f | %.1f |", w->seat[i].policy,
                   all ? "mean" : name, x.read, 100 * x.share, 100 * x.recall, 100 * x.best,
                   100 * x.overlap);
            if (w->to)
                printf(" %.2f | %.2f | %.1f |", 100 * x.hit, 100 * x.best_hit, 100 * x.found);
            putchar('\n');
        }
}

/* A row of a KV head; of a layer, without a head; of the policy, without both */
static void csv_row(const struct work *w, int i, int l, int kv)
{
    const struct cover x = cover_of(w, i, l, kv);
    const double v[] = { l < 0 ? (double)NAN : l,
                         kv < 0 ? (double)NAN : kv,
                         x.read,
                         x.share,
                         x.recall,
                         x.best,
                         x.overlap,
                         x.hit,
                         x.best_hit,
                         x.found };

    cb_csv_text(w->seat[i].policy, stdout);
    for (size_t k = 0; k < sizeof v / sizeof *v - (w->to ? 0 : 3); k++)
        cb_csv_number(v[k], stdout);
    putchar('\n');
}

static void print_csv(const struct work *w)
{
    printf("policy,layer,kv_head,read,read_share,recall,best,overlap%s\n",
           w->to ? ",hit,best_hit,found" : "");
    for (int i = 0; i < w->n; i++) {
        csv_row(w, i, -1, -1);
        for (int l = 0; l < w->full.n_layer; l++)
            for (int kv = -1; kv < w->seat[i].c.n_kv; kv++)
                csv_row(w, i, l, kv);
    }
}

/* key, of: what the row is of */
static json_t *json_row(const struct work *w, const struct cover *x, const char *key, json_t *of)
{
    json_t *row =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", key, of, "read", cb_json_real(x->read),
                  "read_share", cb_json_real(x->share), "recall", cb_json_real(x->recall), "best",
                  cb_json_real(x->best), "overlap", cb_json_real(x->overlap));

    if (w->to) {
        cb_json_set(&row, "hit", cb_json_real(x->hit));
        cb_json_set(&row, "best_hit", cb_json_real(x->best_hit));
        cb_json_set(&row, "found", cb_json_real(x->found));
    }
    return row;
}

static json_t *json_layer(const struct work *w, int i, int l)
{
    const struct cover all = cover_of(w, i, l, -1);
    json_t *row = json_row(w, &all, "layer", json_integer(l)), *heads = json_array();

    for (int kv = 0; kv < w->seat[i].c.n_kv; kv++) {
        const struct cover x = cover_of(w, i, l, kv);
        cb_json_add(&heads, json_row(w, &x, "kv_head", json_integer(kv)));
    }
    cb_json_set(&row, "heads", heads);
    return row;
}

static int print_json(const struct work *w)
{
    const struct text *t = w->t;
    json_t *rows = json_array();

    for (int i = 0; i < w->n; i++) {
        const struct cover all = cover_of(w, i, -1, -1);
        json_t *row = json_row(w, &all, "policy", cb_json_str(w->seat[i].policy));
        json_t *layers = json_array();
        for (int l = 0; l < w->full.n_layer; l++)
            cb_json_add(&layers, json_layer(w, i, l));
        cb_json_set(&row, "layers", layers);
        cb_json_set(&row, "missing", list_of(w->seat[i].c.missing, t->n_step));
        cb_json_add(&rows, row);
    }
    return cb_json_print(json_pack("{s:o, s:i, s:i, s:i, s:o}", "model", cb_json_str(t->who),
                                   "context", t->n - t->n_step, "tokens", t->n_step, "passage",
                                   w->to - w->from, "rows", rows));
}

/* ---- eval attention: the picture ---- */

static int draw_curves(const struct work *w, const char *path, double *y, struct curve *curve,
                       char (*name)[160])
{
    const struct text *t = w->t;
    const int n = w->full.n_layer;
    char title[2][240];
    const struct diagram d[] = {
        { title[0], "layer", curve, 2 * w->n, n, .step = 1 },
        { title[1], "token", curve + 2 * w->n, w->n, t->n_step, t->n - t->n_step, .step = 1 },
    };

    for (int i = 0; i < w->n; i++) {
        double *recall = y + (size_t)(2 * i * n), *best = recall + n;
        for (int l = 0; l < n; l++) {
            const struct cover x = cover_of(w, i, l, -1);
            recall[l] = x.recall;
            best[l] = x.best;
        }
        snprintf(name[i], sizeof name[i], "best for %.140s", w->seat[i].policy);
        curve[2 * i] = (struct curve){ w->seat[i].policy, recall, .ink = i };
        curve[2 * i + 1] = (struct curve){ name[i], best, .dashed = 1, .ink = i };
        curve[2 * w->n + i] = (struct curve){ w->seat[i].policy, w->seat[i].c.missing, .ink = i };
    }
    snprintf(title[0], sizeof title[0], "%.150s: share of full attention on what is read", t->who);
    snprintf(title[1], sizeof title[1], "%.150s: full attention on what is not read", t->who);
    return cb_chart_diagrams(path, d, 2);
}

static int draw(const struct work *w, const char *path)
{
    const size_t n = (size_t)w->n;
    double *y = cb_calloc(2 * n * (size_t)w->full.n_layer, sizeof *y);
    struct curve *curve = cb_calloc(3 * n, sizeof *curve);
    char(*name)[160] = cb_calloc(n, sizeof *name);
    int err = y && curve && name ? CB_OK : CB_ENOMEM;

    if (!err)
        err = draw_curves(w, path, y, curve, name);
    free(y);
    free(curve);
    free(name);
    return err;
}

static int measure(struct work *w)
{
    struct text *t = w->t;
    int rc;

    TRY(open_seats(w));
    cb_progress_start(&t->bar, cb_progress_when(t->o), "attention", "tokens");
    rc = feed_prompt(w);
    if (!rc)
        rc = feed_steps(w);
    cb_progress_end(&t->bar);
    TRY(rc);
    if (cb_opt_is(t->o, ARG_TABLE, "json"))
        TRY(print_json(w));
    else
        (cb_opt_is(t->o, ARG_TABLE, "csv") ? print_csv : print_md)(w);
    return cb_opt_set(t->o, ARG_MEASURE_PLOT) ? draw(w, cb_opt_text(t->o, ARG_MEASURE_PLOT))
                                              : CB_OK;
}

static int run_attention(const struct opts *o)
{
    struct text t;
    struct work w = { .t = &t };
    int rc = text_open(o, &t);

    if (!rc)
        rc = measure(&w);
    close_seats(&w);
    text_close(&t);
    return cb_interrupt_status(rc);
}

/* ---- eval lazy ---- */

struct spread {
    double mean, deviation, lowest, highest;
};

static struct spread spread_of(const double *x, int n)
{
    struct spread s = { 0, 0, x[0], x[0] };

    for (int i = 0; i < n; i++) {
        s.mean += x[i] / n;
        s.lowest = fmin(s.lowest, x[i]);
        s.highest = fmax(s.highest, x[i]);
    }
    for (int i = 0; i < n; i++)
        s.deviation += (x[i] - s.mean) * (x[i] - s.mean) / n;
    s.deviation = sqrt(s.deviation);
    return s;
}

static int print_map_json(const struct text *t, const struct ends_map *m)
{
    json_t *layers = json_array();

    for (int l = 0; l < m->n_layer; l++) {
        const double *x = m->share + (size_t)l * (size_t)m->cap_step;
        const struct spread s = spread_of(x, m->n_step);
        cb_json_add(&layers, json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "layer", l, "mean",
                                       cb_json_real(s.mean), "deviation", cb_json_real(s.deviation),
                                       "lowest", cb_json_real(s.lowest), "highest",
                                       cb_json_real(s.highest), "shares", list_of(x, m->n_step)));
    }
    return cb_json_print(json_pack("{s:o, s:i, s:i, s:i, s:i, s:o}", "model", cb_json_str(t->who),
                                   "context", t->n - t->n_step, "tokens", t->n_step, "sink",
                                   m->sink, "recent", m->recent, "layers", layers));
}

static void print_map_csv(const struct text *t, const struct ends_map *m)
{
    puts("layer,token,share");
    for (int l = 0; l < m->n_layer; l++)
        for (int i = 0; i < m->n_step; i++) {
            printf("%d,%d", l, t->n - t->n_step + i);
            cb_csv_number(m->share[(size_t)l * (size_t)m->cap_step + (size_t)i], stdout);
            putchar('\n');
        }
}

static void print_map_md(const struct ends_map *m)
{
    puts("| layer | mean % | deviation | lowest % | highest % |\n| --- | --- | --- | --- | --- |");
    for (int l = 0; l < m->n_layer; l++) {
        const struct spread s = spread_of(m->share + (size_t)l * (size_t)m->cap_step, m->n_step);
        printf("| %d | %.1f | %.1f | %.1f | %.1f |\n", l, 100 * s.mean, 100 * s.deviation,
               100 * s.lowest, 100 * s.highest);
    }
}

static int print_map(const struct text *t, const struct ends_map *m)
{
    const char *path = cb_opt_text(t->o, ARG_MEASURE_PLOT);
    char title[280];

    if (cb_opt_is(t->o, ARG_TABLE, "json"))
        TRY(print_map_json(t, m));
    else if (cb_opt_is(t->o, ARG_TABLE, "csv"))
        print_map_csv(t, m);
    else
        print_map_md(m);
    snprintf(title, sizeof title, "%.150s: attention on the first %d and the last %d tokens",
             t->who, m->sink, m->recent);
    return path ? cb_chart_map(path, title, m->share, m->n_layer, m->cap_step, t->n - t->n_step,
                               m->n_step, 640)
                : CB_OK;
}

static int map(struct text *t, struct ends_map *m)
{
    const struct probe probe = { cb_ends_map_look, m, 0 };
    const int sink = cb_opt_int(t->o, ARG_LAZY_SINK), recent = cb_opt_int(t->o, ARG_LAZY_RECENT);
    cb_session *s;
    int rc;

    if (t->n - t->n_step < sink + recent)
        return cb_fail(CB_EARG,
                       "%s: the first measured token has %d before it; --sink and "
                       "--recent are %d",
                       cb_opt_text(t->o, ARG_PPL_FILE), t->n - t->n_step, sink + recent);
    TRY(cb_ends_map_open(m, t->e.info.n_policy_layer, t->n_step, sink, recent));
    TRY(cb_probe_open(t->e.model, &probe, t->n, &s));
    t->total = t->n;
    cb_progress_start(&t->bar, cb_progress_when(t->o), "lazy", "tokens");
    rc = cb_probe_feed(s, t->ids, t->n, t->n_step, &t->how);
    cb_progress_end(&t->bar);
    cb_session_close(s);
    return rc ? rc : print_map(t, m);
}

static int run_lazy(const struct opts *o)
{
    struct text t;
    struct ends_map m = { 0 };
    int rc = text_open(o, &t);

    if (!rc)
        rc = map(&t, &m);
    free(m.share);
    text_close(&t);
    return cb_interrupt_status(rc);
}

/* ---- the commands ---- */

#define COMMON (SET_OWN_MEASURE | SET_MODEL | SET_ENGINE | SET_THREADS | SET_PROGRESS | SET_GENERAL)

const struct cmd cb_cmd_eval_attention = {
    .name = "eval attention",
    .operands = "",
    .brief = "measure how much of full attention falls on what policies read",
    .sets = COMMON | SET_OWN_ATTENTION | SET_POLICIES,
    .run = run_attention,
    .no_split = "it looks at the keys of all tokens",
};

const struct cmd cb_cmd_eval_lazy = {
    .name = "eval lazy",
    .operands = "",
    .brief = "map which layers attend to the ends of a text alone, token by token",
    .sets = COMMON | SET_OWN_LAZY,
    .run = run_lazy,
    .no_split = "it looks at the keys of all tokens",
};
