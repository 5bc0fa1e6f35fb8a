/* SPDX-License-Identifier: MIT */
/* score_table.c - scores by task, length and policy. */
#include "score_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "base/macos.h"
#include "csv.h"

/* Wilson's score interval of a mean of n values in 0..1: made for shares of right answers, wider
 * than needed for other scores. */
static void wilson(double mean, int n, double *low, double *high)
{
    const double z = 1.959963984540054, z2 = z * z / n;
    const double mid = (mean + z2 / 2) / (1 + z2);
    const double half = z / (1 + z2) * sqrt(mean * (1 - mean) / n + z2 / (4 * n));

    *low = n ? fmax(0, mid - half) : 0;
    *high = n ? fmin(1, mid + half) : 1;
}

/* ---- groups of items: a task at a length ---- */

struct groups {
    const struct item *at; /* the items */
    int *order;            /* [n items] group by group, in each in the order of the items */
    int *first;            /* [n + 1] where in `order` a group begins; the last one ends */
    int n;
};

static int by_group(const void *a, const void *b, void *arg)
{
    const struct item *at = arg, *x = &at[*(const int *)a], *y = &at[*(const int *)b];
    const int d = strcmp(x->task, y->task);

    if (d || x->length != y->length)
        return d ? d : x->length < y->length ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Groups come in the order of their first items. */
static int by_first(const void *a, const void *b)
{
    const int *x = *(const int *const *)a, *y = *(const int *const *)b;
    return *x < *y ? -1 : *x > *y;
}

static int same_group(const struct item *x, const struct item *y)
{
    return x->length == y->length && !strcmp(x->task, y->task);
}

/* Sorted items -> their groups, in order */
static int cut_groups(const int *sorted, int n_item, struct groups *g)
{
    const int **begin = cb_calloc((size_t)n_item + 1, sizeof *begin);
    int n = 0;

    if (!begin)
        return CB_ENOMEM;
    for (int i = 0; i < n_item; i++)
        if (!i || !same_group(&g->at[sorted[i - 1]], &g->at[sorted[i]]))
            begin[g->n++] = sorted + i;
    qsort(begin, (size_t)g->n, sizeof *begin, by_first);
    for (int i = 0; i < g->n; i++) {
        const int *k = begin[i];
        g->first[i] = n;
        do
            g->order[n++] = *k++;
        while (k < sorted + n_item && same_group(&g->at[*k], &g->at[*begin[i]]));
    }
    g->first[g->n] = n;
    free(begin);
    return CB_OK;
}

static int groups_make(const struct item_list *items, struct groups *g)
{
    const size_t n = (size_t)items->n;
    int *sorted = cb_calloc(n + 1, sizeof *sorted), err;

    *g = (struct groups){ .at = items->at,
                          .order = cb_calloc(n + 1, sizeof *g->order),
                          .first = cb_calloc(n + 1, sizeof *g->first) };
    for (int i = 0; sorted && i < items->n; i++)
        sorted[i] = i;
    if (sorted && n)
        qsort_r(sorted, n, sizeof *sorted, by_group, items->at);
    err = sorted && g->order && g->first ? cut_groups(sorted, items->n, g) : CB_ENOMEM;
    free(sorted);
    return err;
}

static void groups_free(struct groups *g)
{
    free(g->order);
    free(g->first);
}

/* ---- one row ---- */

struct sums {
    int n, n_pair;
    double score, loss, loss2, kv, kv_full, read, read_full;
};

static void add(struct sums *s, const struct answer *a, const struct answer *full)
{
    s->n++;
    s->score += a->score;
    s->kv += (double)a->kv_bytes;
    s->kv_full += (double)a->kv_full_bytes;
    if (!full)
        return;
    s->n_pair++;
    s->loss += full->score - a->score;
    s->loss2 += (full->score - a->score) * (full->score - a->score);
    s->read += (double)a->kv_read_bytes;
    s->read_full += (double)full->kv_read_bytes;
}

static void finish(const struct sums *s, struct row *r)
{
    const double mean = s->score / s->n, loss = s->n_pair ? s->loss / s->n_pair : NAN;

    r->n = s->n;
    r->score = 100 * mean;
    wilson(mean, s->n, &r->low, &r->high);
    r->low *= 100;
    r->high *= 100;
    r->loss = 100 * loss;
    r->loss_error = s->n_pair > 1
                        ? 196 * sqrt(fmax(0, s->loss2 / s->n_pair - loss * loss) / (s->n_pair - 1))
                        : NAN;
    r->kv_bytes = s->kv / s->n;
    r->kv_share = s->kv_full > 0 ? s->kv / s->kv_full : NAN;
    r->read_share = s->read_full > 0 ? s->read / s->read_full : NAN;
}

static void label(const struct answerer *by, struct row *r)
{
    const size_t cap = sizeof r->policy;
    size_t n = (size_t)snprintf(r->policy, cap, "%s", by->policy);

    if (n < cap && strcmp(by->type_k, "f16"))
        n += (size_t)snprintf(r->policy + n, cap - n, " -ctk %s", by->type_k);
    if (n < cap && strcmp(by->type_v, "f16"))
        n += (size_t)snprintf(r->policy + n, cap - n, " -ctv %s", by->type_v);
    if (n < cap && strcmp(by->prefill, "dense"))
        snprintf(r->policy + n, cap - n, " --prefill %s", by->prefill);
}

static int push(struct rows *x, const struct row *r)
{
    TRY(cb_grow_by_one(&x->at, x->n, sizeof *x->at));
    x->at[x->n++] = *r;
    return CB_OK;
}

/* The answers of one policy to group k; no row where there is none. */
static int one_row(const struct run *run, const struct answers *have, const struct groups *g, int k,
                   const struct answerer *by, struct rows *out)
{
    const struct answerer full = cb_run_full(run, by->question);
    const struct item *first = &g->at[g->order[g->first[k]]];
    struct row r = { .task = first->task, .length = first->length, .question = by->question };
    struct sums s = { 0 };

    for (int i = g->first[k]; i < g->first[k + 1]; i++) {
        const struct item *it = &g->at[g->order[i]];
        const struct answer *a = cb_answers_find(have, by, it->id, it->hash);
        if (a)
            add(&s, a, cb_answers_find(have, &full, it->id, it->hash));
    }
    if (!s.n)
        return CB_OK;
    label(by, &r);
    finish(&s, &r);
    return push(out, &r);
}

static int group_rows(const struct run *run, const struct answers *have, const struct groups *g,
                      int k, struct rows *out)
{
    for (int q = 0; q < 2; q++) {
        struct answerer by = cb_run_full(run, (enum question)q);
        if (!(q == QUESTION_AWARE ? run->aware : run->blind))
            continue;
        TRY(one_row(run, have, g, k, &by, out));
        for (int i = 0; i < run->n_policy; i++) {
            by = cb_run_policy(run, i, (enum question)q);
            if (!cb_run_is_full(run, i))
                TRY(one_row(run, have, g, k, &by, out));
        }
    }
    return CB_OK;
}

/* ---- means over tasks and lengths ---- */

/* Rows of the same policy and question, each group counting once. */
static struct row mean_of(const struct rows *x, int first, int n_row)
{
    struct row m = x->at[first];
    double n = 0, var = 0, score = 0, loss = 0, loss_var = 0, kv = 0, share = 0, read = 0;

    m.task = "mean";
    m.length = m.n = 0;
    for (int i = 0; i < n_row; i++) {
        const struct row *r = &x->at[i];
        if (r->question != m.question || strcmp(r->policy, m.policy))
            continue;
        n++;
        m.n += r->n;
        score += r->score;
        var += (r->high - r->low) * (r->high - r->low) / 4;
        loss += r->loss;
        loss_var += r->loss_error * r->loss_error;
        kv += r->kv_bytes;
        share += r->kv_share;
        read += r->read_share;
    }
    m.score = score / n;
    m.low = fmax(0, m.score - sqrt(var) / n);
    m.high = fmin(100, m.score + sqrt(var) / n);
    m.loss = loss / n;
    m.loss_error = sqrt(loss_var) / n;
    m.kv_bytes = kv / n;
    m.kv_share = share / n;
    m.read_share = read / n;
    return m;
}

static int mean_rows(struct rows *x)
{
    const int n = x->n;

    for (int i = 0; i < n; i++) {
        struct row m;
        int seen = 0;
        for (int j = n; j < x->n && !seen; j++) /* the means so far: one for each policy */
            seen =
                x->at[j].question == x->at[i].question && !strcmp(x->at[j].policy, x->at[i].policy);
        if (seen)
            continue;
        m = mean_of(x, i, n);
        TRY(push(x, &m));
    }
    return CB_OK;
}

int cb_rows_make(const struct run *r, const struct item_list *items, const struct answers *have,
                 struct rows *out)
{
    struct groups g;
    int err = groups_make(items, &g);

    *out = (struct rows){ 0 };
    for (int k = 0; k < g.n && !err; k++)
        err = group_rows(r, have, &g, k, out);
    if (!err && g.n > 1)
        err = mean_rows(out);
    groups_free(&g);
    return err;
}

void cb_rows_free(struct rows *x)
{
    free(x->at);
    *x = (struct rows){ 0 };
}

/* ---- forms ---- */

static void length_text(const struct row *r, char (*s)[16])
{
    **s = 0;
    if (r->length)
        snprintf(*s, sizeof *s, "%d", r->length);
}

static void loss_text(const struct row *r, char (*s)[48])
{
    if (isnan(r->loss))
        snprintf(*s, sizeof *s, "-");
    else if (isnan(r->loss_error))
        snprintf(*s, sizeof *s, "%+.1f", 0 - r->loss);
    else
        snprintf(*s, sizeof *s, "%+.1f ± %.1f", 0 - r->loss, r->loss_error);
}

static double percent_or_0(double share)
{
    return isnan(share) ? 0 : 100 * share;
}

void cb_rows_md(const struct rows *x, FILE *f)
{
    fputs("| task | length | question | policy | n | score | 95 % interval | against full | bank "
          "MiB | held % | read % |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
          f);
    for (int i = 0; i < x->n; i++) {
        const struct row *r = &x->at[i];
        char length[16], loss[48];
        length_text(r, &length);
        loss_text(r, &loss);
        fprintf(f, "| %s | %s | %s | %s | %d | %.1f | %.1f to %.1f | %s | %.2f | %.1f | %.1f |\n",
                r->task, length, cb_question_name(r->question), r->policy, r->n, r->score, r->low,
                r->high, loss, r->kv_bytes / 1048576, percent_or_0(r->kv_share),
                percent_or_0(r->read_share));
    }
}

void cb_rows_csv(const struct rows *x, FILE *f)
{
    fputs("task,length,question,policy,n,score,low,high,loss,loss_error,kv_bytes,kv_share,"
          "read_share\n",
          f);
    for (int i = 0; i < x->n; i++) {
        const struct row *r = &x->at[i];
        const double v[] = { r->score, r->low, r->high, r->loss, r->loss_error };
        cb_csv_text(r->task, f);
        fprintf(f, ",%d,%s,", r->length, cb_question_name(r->question));
        cb_csv_text(r->policy, f);
        fprintf(f, ",%d", r->n);
        for (size_t j = 0; j < sizeof v / sizeof *v; j++)
            cb_csv_number(v[j], f);
        fprintf(f, ",%.0f", r->kv_bytes);
        cb_csv_number(r->kv_share, f);
        cb_csv_number(r->read_share, f);
        fputc('\n', f);
    }
}

int cb_rows_json(const struct rows *x, const struct run *r, int bad, FILE *f)
{
    json_t *rows = json_array(), *all;
    int rc;

    for (int i = 0; i < x->n; i++) {
        const struct row *w = &x->at[i];
        cb_json_add(
            &rows,
            json_pack("{s:s, s:i, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "task",
                      w->task, "length", w->length, "question", cb_question_name(w->question),
                      "policy", w->policy, "n", w->n, "score", cb_json_real(w->score), "low",
                      cb_json_real(w->low), "high", cb_json_real(w->high), "loss",
                      cb_json_real(w->loss), "loss_error", cb_json_real(w->loss_error), "kv_bytes",
                      json_integer(llround(w->kv_bytes)), "kv_share", cb_json_real(w->kv_share),
                      "read_share", cb_json_real(w->read_share)));
    }
    all = json_pack("{s:s, s:o, s:i, s:i}", "model", r->who, "rows", rows, "bad_lines", bad,
                    "skipped", r->n_long);
    if (!all)
        return cb_json_fail("table");
    rc = cb_json_dumpf(all, f, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
    fputc('\n', f);
    json_decref(all);
    return rc;
}
