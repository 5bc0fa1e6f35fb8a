/* SPDX-License-Identifier: MIT */
/* calibrate.c - shared by the analyses of calibrate: a model, samples of text, a preset to
 * write. */
#include "calibrate.h"
#include "eval/data.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json_lenient.h"
#include "base/new_file.h"
#include "cli/output/log.h"

/* ---- open ---- */

static int on_progress(void *arg, int64_t done, int64_t total)
{
    struct calibrate *c = arg;

    (void)total;
    cb_progress_step(&c->bar, c->done + done, c->total);
    return cb_interrupted();
}

static int read_samples(struct calibrate *c, int least)
{
    char story[PATH_MAX];
    const char *only = story;
    int n;
    const char *const *path = cb_opt_texts(c->o, ARG_CAL_FILE, &n);

    if (!n) {
        TRY(cb_data_find("blue-carbuncle.txt", story, sizeof story));
        path = &only;
        n = 1;
    }
    return cb_samples_read(c->e.model, path, n, cb_opt_int(c->o, ARG_SAMPLES), c->n_ctx, least,
                           &c->samples);
}

/* File names without folders, which mean nothing on another machine. */
static json_t *file_names(const struct opts *o)
{
    json_t *a = json_array();
    int n;
    const char *const *path = cb_opt_texts(o, ARG_CAL_FILE, &n);

    for (int i = 0; i < n; i++)
        cb_json_add(&a, cb_json_str(cb_file_name(path[i])));
    if (!n)
        cb_json_add(&a, json_string("blue-carbuncle.txt"));
    return a;
}

/* Opens the model, and reads samples of at least `least` tokens. */
static int calibrate_open(const struct opts *o, struct calibrate *c, int least)
{
    char by[64];

    *c = (struct calibrate){ .o = o, .n_ctx = cb_opt_int(o, ARG_CAL_CTX) };
    c->how = (struct cb_prefill){ .progress = on_progress, .progress_arg = c };
    TRY(cb_engine_open(o, &c->e));
    if (!cb_opt_set(o, ARG_CAL_CTX) && c->n_ctx > c->e.info.n_ctx_train)
        c->n_ctx = c->e.info.n_ctx_train;
    /* a file that cannot be written is reported before the work, not after it */
    TRY(cb_new_file_check(cb_opt_text(o, ARG_CAL_OUTPUT)));
    TRY(cb_new_file_check(cb_opt_text(o, ARG_CAL_PLOT)));
    TRY(read_samples(c, least));
    snprintf(by, sizeof by, "ctxbank %s", cb_version());
    c->made = json_pack("{s:s, s:s, s:o, s:i, s:i}", "by", by, "command", o->cmd->name, "texts",
                        file_names(o), "samples", c->samples.n, "context", c->n_ctx);
    return c->made ? CB_OK : cb_json_fail("preset");
}

static void calibrate_close(struct calibrate *c)
{
    json_decref(c->made);
    cb_samples_free(&c->samples);
    cb_engine_close(&c->e);
}

void cb_calibrate_fed(struct calibrate *c, int64_t n)
{
    c->done += n;
    cb_progress_step(&c->bar, c->done, c->total);
}

int cb_calibrate_probe(struct calibrate *c, const struct probe *p, int n_step, int64_t more)
{
    cb_session *s;
    int err;

    c->total = more;
    for (int i = 0; i < c->samples.n; i++)
        c->total += c->samples.at[i].n;
    cb_progress_start(&c->bar, cb_progress_when(c->o), "calibrate", "tokens");
    err = cb_probe_open(c->e.model, p, c->n_ctx, &s);
    for (int i = 0; i < c->samples.n && !err; i++) {
        const struct sample *x = &c->samples.at[i];
        err = cb_probe_feed(s, x->ids, x->n, n_step, &c->how);
        cb_calibrate_fed(c, x->n);
    }
    cb_session_close(s);
    if (!more || err)
        cb_progress_end(&c->bar);
    return err;
}

/* ---- results ---- */

json_t *cb_calibrate_list(const double *x, int n)
{
    json_t *a = json_array();

    for (int i = 0; i < n; i++)
        cb_json_add(&a, json_real(x[i]));
    return a;
}

static json_t *model_of(const struct calibrate *c)
{
    char id[17];

    snprintf(id, sizeof id, "%016" PRIx64, c->e.info.fingerprint);
    return json_pack("{s:s, s:s, s:i, s:i}", "fingerprint", id, "name", c->e.info.name, "n_layer",
                     c->e.info.n_policy_layer, "n_kv", c->e.info.n_kv);
}

static int write_preset(const char *path, const json_t *preset)
{
    char *text = cb_json_dumps(preset, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    const int err = text ? cb_new_file_save(path, text, strlen(text)) : cb_json_fail("preset");

    free(text);
    return err;
}

static int save(struct calibrate *c, const char *method, const char *options, json_t *all)
{
    const char *path = cb_opt_text(c->o, ARG_CAL_OUTPUT);

    if (!path)
        return CB_OK;
    TRY(write_preset(path, all));
    cb_log_note("%s: written; --policy %s:%spreset=%s reads it", path, method, options, path);
    return CB_OK;
}

int cb_calibrate_save(struct calibrate *c, const char *method, const char *options, json_t *values,
                      json_t *rows)
{
    json_t *all = json_pack("{s:s, s:o}", "method", method, "model", model_of(c));
    int err = CB_OK;

    if (!all || json_object_update(all, values) || json_object_set(all, "made", c->made) || !rows)
        err = cb_json_fail("preset");
    json_decref(values);
    if (!err)
        err = save(c, method, options, all);
    cb_json_set(&all, "rows", rows);
    if (!err && cb_opt_flag(c->o, ARG_JSON))
        return cb_json_print(all);
    json_decref(all);
    return err;
}

int cb_calibrate_run(const struct opts *o, int least, int (*work)(struct calibrate *c))
{
    struct calibrate c;
    int rc;

    cb_interrupt_catch();
    rc = calibrate_open(o, &c, least);
    if (!rc)
        rc = work(&c);
    calibrate_close(&c);
    return cb_interrupt_status(rc);
}
