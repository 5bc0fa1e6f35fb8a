/* SPDX-License-Identifier: MIT */
/* saved_bank.c - a session to a file, and back. The file's description says what the session was
 * opened with and for which model; its areas are those of session_state.h. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/bank_file.h"
#include "base/err.h"
#include "session_state.h"

/* ---- the description ---- */

enum { HEX = 17 };

static void hex(uint64_t x, char out[HEX])
{
    snprintf(out, HEX, "%016" PRIx64, x);
}

/* Who can read the prepacked blocks; "" where there are none */
static const char *layout(const struct cb_session *s)
{
    for (int l = 0; l < s->bank.n_layer; l++)
        if (s->bank.store[l].prepacked)
            return s->dev->isa;
    return "";
}

static const char *text_or(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

static int describe(const struct cb_session *s, char **out)
{
    const struct cb_session_params *p = &s->params;
    char weights[HEX], plan[HEX];
    uint64_t hash;
    json_t *j;

    TRY(cb_model_weights_hash(s->model, &hash));
    hex(hash, weights);
    hex(cb_policy_plan_hash(s->policy), plan);
    j = json_pack("{s:s, s:{s:s, s:s, s:s}, s:{s:i, s:i, s:s, s:s, s:s, s:s, s:s}, s:s, s:i, s:I, "
                  "s:I, s:I}",
                  "program", "ctxbank " CTXBANK_VERSION_STRING, "model", "name", s->model->name,
                  "family", s->model->arch->name, "weights", weights, "session", "n_ctx",
                  s->bank.n_ctx, "chunk", s->chunk, "type_k", text_or(p->type_k, "f16"), "type_v",
                  text_or(p->type_v, "f16"), "policy", text_or(p->policy, "full"), "prefill",
                  text_or(p->prefill, "dense"), "plan", plan, "layout", layout(s), "tokens",
                  s->bank.n_seen, "kv_bytes", (json_int_t)cb_bank_bytes(&s->bank), "kv_peak_bytes",
                  (json_int_t)s->bank.peak_bytes, "kv_read_bytes", (json_int_t)s->bank.read_bytes);
    *out = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
    json_decref(j);
    return *out ? CB_OK
                : cb_fail(CB_ENOMEM, "bank: its description: out of memory, or a name "
                                     "that is not UTF-8");
}

/* ---- saving ---- */

static int add_all(const struct cb_session *s, struct bank_writer *w)
{
    const int n_counts = cb_session_n_counts(s);
    int32_t *counts = cb_calloc((size_t)n_counts, sizeof *counts);
    struct area *a = NULL;
    int n = 0, err = counts ? cb_session_areas(s, &a, &n) : CB_ENOMEM;

    if (!err) {
        cb_session_counts(s, counts);
        err = cb_bank_writer_add(
            w, &(struct area){ AREA_COUNTS, 0, 0, 0, counts, (size_t)n_counts * sizeof *counts });
    }
    for (int i = 0; !err && i < n; i++)
        err = cb_bank_writer_add(w, &a[i]);
    free(counts);
    free(a);
    return err;
}

static int save(const struct cb_session *s, const char *path)
{
    struct bank_writer *w;
    char *about;
    int err;

    TRY(describe(s, &about));
    err = cb_bank_writer_open(path, &w);
    if (!err)
        err = add_all(s, w);
    if (!err)
        err = cb_bank_writer_finish(w, about, strlen(about));
    else
        cb_bank_writer_abort(w);
    free(about);
    return err;
}

int cb_session_save(const cb_session *s, const char *path)
{
    int err;

    TRY(cb_session_check_idle(s));
    if (!cb_policy_is_listed(s->policy))
        return cb_fail(CB_EUNSUPPORTED, "%s: policy %s is not one of the library's", path,
                       s->policy->m->name);
    TRY(cb_device_lock(s->dev));
    err = save(s, path);
    cb_device_unlock(s->dev);
    return err;
}

/* ---- loading ---- */

struct about {
    json_t *json;
    struct cb_session_params params;
    const char *weights, *plan, *layout;
    json_int_t peak_bytes, read_bytes;
};

static int read_about(const struct bank_file *f, struct about *a)
{
    json_error_t e;

    a->json = json_loadb(f->about, f->n_about, 0, &e);
    if (!a->json ||
        json_unpack(a->json, "{s:{s:s}, s:{s:i, s:i, s:s, s:s, s:s, s:s, s:s}, s:s, s:I, s:I}",
                    "model", "weights", &a->weights, "session", "n_ctx", &a->params.n_ctx, "chunk",
                    &a->params.chunk, "type_k", &a->params.type_k, "type_v", &a->params.type_v,
                    "policy", &a->params.policy, "prefill", &a->params.prefill, "plan", &a->plan,
                    "layout", &a->layout, "kv_peak_bytes", &a->peak_bytes, "kv_read_bytes",
                    &a->read_bytes))
        return cb_fail(CB_EFORMAT, "%s: damaged: its description", f->path);
    return CB_OK;
}

static int check_model(const struct bank_file *f, const struct about *a, struct cb_model *m)
{
    char weights[HEX];
    uint64_t hash;
    int err;

    TRY(cb_device_lock(m->dev));
    err = cb_model_weights_hash(m, &hash);
    cb_device_unlock(m->dev);
    TRY(err);
    hex(hash, weights);
    if (strcmp(weights, a->weights))
        return cb_fail(CB_EUNSUPPORTED, "%s: saved with another model, or other rotation settings",
                       f->path);
    if (*a->layout && strcmp(a->layout, m->dev->isa))
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: its blocks are prepacked for %s; this device computes with %s", f->path,
                       a->layout, m->dev->isa);
    return CB_OK;
}

static int fill_counts(const struct bank_file *f, struct cb_session *s)
{
    const size_t n = (size_t)cb_session_n_counts(s);
    int32_t *counts;
    int err;

    if (!f->n_area || f->area[0].kind != AREA_COUNTS || f->area[0].bytes != n * sizeof *counts)
        return cb_fail(CB_EFORMAT, "%s: damaged: its counts do not fit the model", f->path);
    if (!(counts = cb_calloc(n, sizeof *counts)))
        return CB_ENOMEM;
    err = cb_bank_file_read(f, 0, counts);
    if (!err)
        err = cb_session_set_counts(s, counts);
    free(counts);
    return err;
}

static int same_area(const struct bank_area *f, const struct area *a)
{
    return f->kind == a->kind && f->layer == a->layer && f->head == a->head && f->from == a->from &&
           f->bytes == a->bytes;
}

static int fill_areas(const struct bank_file *f, struct cb_session *s)
{
    struct area *a;
    int n, err;

    TRY(cb_session_areas(s, &a, &n));
    err = n == f->n_area - 1 ? CB_OK
                             : cb_fail(CB_EFORMAT, "%s: damaged: %d areas instead of %d", f->path,
                                       f->n_area - 1, n);
    for (int i = 0; !err && i < n; i++) {
        if (!same_area(&f->area[i + 1], &a[i]))
            err = cb_fail(CB_EFORMAT, "%s: damaged: area %d is not the one expected", f->path, i);
        else if (cb_area_is_rows(a[i].kind)) /* many: mapped */
            err = cb_bank_file_map(f, i + 1, a[i].at);
        else
            err = cb_bank_file_read(f, i + 1, a[i].at);
    }
    if (!err)
        cb_session_wrote(s, a, n);
    free(a);
    return err;
}

static int fill(const struct bank_file *f, const struct about *a, struct cb_session *s)
{
    char plan[HEX];
    int err;

    hex(cb_policy_plan_hash(s->policy), plan);
    if (strcmp(plan, a->plan))
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: policy %s has another plan here: its preset or version has changed",
                       f->path, a->params.policy);
    TRY(cb_device_lock(s->dev));
    err = cb_bank_file_verify(f, s->dev->par);
    cb_device_unlock(s->dev);
    TRY(err);
    err = fill_counts(f, s);
    if (!err)
        err = fill_areas(f, s);
    if (!err)
        err = cb_session_check_areas(s);
    s->bank.peak_bytes = (uint64_t)a->peak_bytes;
    s->bank.read_bytes = (uint64_t)a->read_bytes;
    return err ? cb_fail_in(err, f->path) : CB_OK;
}

static int load(struct bank_file *f, struct about *a, struct cb_model *m, int n_ctx,
                cb_session **out)
{
    int err;

    TRY(read_about(f, a));
    TRY(check_model(f, a, m));
    if (n_ctx)
        a->params.n_ctx = n_ctx;
    TRY(cb_session_open(m, &a->params, out));
    err = fill(f, a, *out);
    if (err) {
        cb_session_close(*out);
        *out = NULL;
    }
    return err;
}

int cb_session_load(cb_model *m, const char *path, int n_ctx, cb_session **out)
{
    struct about a = { 0 };
    struct bank_file f;
    int err;

    *out = NULL;
    if (!m->dev)
        return cb_fail(CB_EARG, "session: the model was opened for its vocabulary alone");
    TRY(cb_bank_file_open(path, &f));
    err = load(&f, &a, m, n_ctx, out);
    json_decref(a.json);
    cb_bank_file_close(&f);
    return err;
}

/* ---- without a model ---- */

int cb_bank_describe(const char *path, char **json)
{
    struct bank_file f;

    TRY(cb_bank_file_open(path, &f));
    *json = f.about;
    f.about = NULL;
    cb_bank_file_close(&f);
    return CB_OK;
}

int cb_bank_verify(const char *path)
{
    struct bank_file f;
    int err;

    TRY(cb_bank_file_open(path, &f));
    err = cb_bank_file_verify(&f, NULL);
    cb_bank_file_close(&f);
    return err;
}
