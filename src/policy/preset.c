/* SPDX-License-Identifier: MIT */
/* preset.c - JSON files in which an offline analysis wrote a policy's settings for one model. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json_lenient.h"
#include "base/number.h"
#include "base/plain_text.h"
#include "policy.h"

enum { MOST = 4 << 20 }; /* bytes of a preset: a number a head takes few */

struct preset {
    char path[PATH_MAX];
    const char *name; /* in errors: the path, or what a guest gave */
    json_t *root;
};

/* ---- open ---- */

static int check_method(struct policy *p, const struct preset *x)
{
    const json_t *v = json_object_get(x->root, "method");

    const struct method *m;

    if (!v || (json_is_string(v) && !strcmp(json_string_value(v), p->m->name)))
        return CB_OK;
    for (int i = 0; (m = cb_method_at(i)); i++) /* the name in the table, not the file's text */
        if (json_is_string(v) && !strcmp(json_string_value(v), m->name))
            return cb_policy_refuse(p, "preset %s: is of method %s", x->name, m->name);
    return cb_policy_refuse(p, "preset %s: is of no method that there is", x->name);
}

static int check_model(struct policy *p, const struct preset *x)
{
    const json_t *model = json_object_get(x->root, "model");
    const json_t *v = json_object_get(model, "fingerprint");
    char own[17];

    if (!model)
        return CB_OK;
    snprintf(own, sizeof own, "%016" PRIx64, p->sh.model);
    if (!json_is_string(v))
        return cb_policy_refuse(p, "preset %s: model.fingerprint must be a text", x->name);
    if (strcmp(json_string_value(v), own))
        return cb_policy_refuse(p, "preset %s: is of another model, not of %s", x->name, own);
    return CB_OK;
}

static int read_root(struct policy *p, struct preset *x)
{
    json_error_t why;

    struct buf text = { 0 };
    int err = cb_file_read_plain(x->path, MOST, &text);

    if (!err)
        err = cb_plain_text(x->path, &text, NULL);
    if (!err && cb_json_load(text.s, text.n, JSON_REJECT_DUPLICATES, &why, &x->root) == CB_ENOMEM)
        err = CB_ENOMEM;
    cb_buf_free(&text);
    if (err == CB_ENOMEM)
        return cb_policy_no_memory(p);
    if (err && p->sh.guest)
        return cb_policy_refuse(p, "preset %s: cannot be read", x->name);
    if (err)
        return cb_policy_refuse(p, "preset: %s", cb_error());
    if (!x->root)
        return cb_policy_refuse(p, "preset %s: line %d: is not JSON", x->name, why.line);
    if (!json_is_object(x->root))
        return cb_policy_refuse(p, "preset %s: must be a JSON object", x->name);
    return check_method(p, x);
}

static int read_file(struct policy *p, struct preset *x)
{
    TRY(read_root(p, x));
    return check_model(p, x);
}

/* A guest's preset by its name in the folder of presets, with or without .json */
static int find_named(struct policy *p, const char *name, char *path, size_t cap)
{
    static const char *const end[] = { "", ".json" };

    for (size_t i = 0; p->sh.preset_dir && i < sizeof end / sizeof *end; i++)
        if (snprintf(path, cap, "%s/%s%s", p->sh.preset_dir, name, end[i]) < (int)cap &&
            !access(path, R_OK))
            return CB_OK;
    return cb_policy_refuse(p, "preset: there is no preset of this name");
}

/* METHOD-FINGERPRINT.json in the folder of presets; 1 = there is one. */
static int find_own(const struct policy *p, char *path, size_t cap)
{
    int n;

    if (!p->sh.model || !p->sh.preset_dir)
        return 0;
    n = snprintf(path, cap, "%s/%s-%016" PRIx64 ".json", p->sh.preset_dir, p->m->name, p->sh.model);
    return n > 0 && (size_t)n < cap && !access(path, R_OK);
}

static int open_with(struct policy *p, const char *path,
                     int (*read)(struct policy *p, struct preset *x), struct preset **out)
{
    struct preset *x = cb_calloc(1, sizeof *x);
    int err = CB_OK;

    *out = NULL;
    if (!x)
        return CB_ENOMEM;
    if (path && p->sh.guest)
        err = find_named(p, path, x->path, sizeof x->path);
    else if (path && snprintf(x->path, sizeof x->path, "%s", path) >= (int)sizeof x->path)
        err = cb_policy_refuse(p, "preset: the path is too long");
    if (!path && !find_own(p, x->path, sizeof x->path)) {
        free(x);
        return CB_OK;
    }
    x->name = path && p->sh.guest ? path : x->path;
    if (!err)
        err = read(p, x);
    if (err) {
        cb_preset_close(x);
        return err;
    }
    *out = x;
    return CB_OK;
}

int cb_preset_open(struct policy *p, const char *path, struct preset **out)
{
    return open_with(p, path, read_file, out);
}

int cb_preset_check(struct policy *p, const char *path)
{
    struct preset *x;
    const int err = open_with(p, path, read_root, &x);

    cb_preset_close(x);
    return err;
}

void cb_preset_close(struct preset *x)
{
    if (!x)
        return;
    json_decref(x->root);
    free(x);
}

const char *cb_preset_path(const struct preset *x)
{
    return x->path;
}

int cb_preset_has(const struct preset *x, const char *key)
{
    return json_object_get(x->root, key) != NULL;
}

double cb_preset_read_share(const struct preset *x)
{
    const json_t *trial = json_object_get(json_object_get(x->root, "made"), "trial");
    const json_t *share = json_object_get(trial, "read_share");

    return json_is_number(share) ? json_number_value(share) : -1;
}

int cb_preset_kept(const struct preset *x)
{
    return !json_is_false(json_object_get(json_object_get(x->root, "made"), "kept"));
}

/* ---- blocks ---- */

static int read_row(struct policy *p, const char *path, const json_t *row, int kv, int *start)
{
    if (!json_is_array(row) || (int)json_array_size(row) != p->sh.n_layer)
        return cb_policy_refuse(p, "preset %s: start[%d] must be of %d layers: not of this model",
                                path, kv, p->sh.n_layer);
    for (int l = 0; l < p->sh.n_layer; l++) {
        const json_t *x = json_array_get(row, (size_t)l);
        const json_int_t v = json_is_integer(x) ? json_integer_value(x) : -1;
        if (v != l && (l == 0 || v != start[l - 1]))
            return cb_policy_refuse(p, "preset %s: start[%d][%d] must be %d or as before", path, kv,
                                    l, l);
        start[l] = (int)v;
    }
    return CB_OK;
}

static int read_count(struct policy *p, const struct preset *x, const char *key, int *out)
{
    const json_t *v = json_object_get(x->root, key);

    if (!v)
        return CB_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1000000000)
        return cb_policy_refuse(p, "preset %s: %s must be a number of tokens", x->name, key);
    *out = (int)json_integer_value(v);
    return CB_OK;
}

int cb_preset_blocks(struct policy *p, const struct preset *x, int *start, int *sinks, int *recent)
{
    const json_t *rows = json_object_get(x->root, "start");

    if (!json_is_array(rows) || (int)json_array_size(rows) != p->sh.n_kv)
        return cb_policy_refuse(p, "preset %s: \"start\" must be of %d KV heads: not of this model",
                                x->name, p->sh.n_kv);
    for (int kv = 0; kv < p->sh.n_kv; kv++)
        TRY(read_row(p, x->name, json_array_get(rows, (size_t)kv), kv, start + kv * p->sh.n_layer));
    TRY(read_count(p, x, "sinks", sinks));
    return read_count(p, x, "recent", recent);
}

/* ---- numbers ---- */

int cb_preset_numbers(struct policy *p, const struct preset *x, const char *key, double *out, int n)
{
    const json_t *a = json_object_get(x->root, key);
    double sum = 0;

    if (!json_is_array(a) || (int)json_array_size(a) != n)
        return cb_policy_refuse(p, "preset %s: \"%s\" must be of %d layers: not of this model",
                                x->name, key, n);
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, (size_t)i);
        out[i] = json_is_number(v) ? json_number_value(v) : -1;
        if (!(out[i] >= 0 && out[i] < 1e9))
            return cb_policy_refuse(p, "preset %s: %s[%d] must be a number, 0 or more", x->name,
                                    key, i);
        sum += out[i];
    }
    return sum > 0 ? CB_OK : cb_policy_refuse(p, "preset %s: %s is all 0", x->name, key);
}

int cb_preset_number(struct policy *p, const struct preset *x, const char *key, double min,
                     double max, double *out)
{
    const json_t *v = json_object_get(x->root, key);
    char low[32], high[32];

    *out = json_number_value(v);
    if (!json_is_number(v) || !(*out >= min && *out <= max))
        return cb_policy_refuse(p, "preset %s: %s must be a number of %s to %s", x->name, key,
                                cb_number_text(min, low), cb_number_text(max, high));
    return CB_OK;
}

int cb_preset_layers(struct policy *p, const struct preset *x, const char *key, char *is_in)
{
    const json_t *a = json_object_get(x->root, key);
    json_int_t last = -1;

    if (!json_is_array(a) || !json_array_size(a))
        return cb_policy_refuse(p, "preset %s: \"%s\" must be a list of layers", x->name, key);
    for (size_t i = 0; i < json_array_size(a); i++) {
        const json_t *v = json_array_get(a, i);
        if (!json_is_integer(v) || json_integer_value(v) <= last ||
            json_integer_value(v) >= p->sh.n_layer)
            return cb_policy_refuse(p, "preset %s: %s[%zu] must be a layer up to %d, and ascend",
                                    x->name, key, i, p->sh.n_layer - 1);
        last = json_integer_value(v);
        is_in[last] = 1;
    }
    return CB_OK;
}
