/* SPDX-License-Identifier: MIT */
/* preset.c - files in which an offline analysis left a policy's options for one model. */
#include <jansson.h>

#include "err.h"
#include "policy.h"

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

static int read_count(struct policy *p, const char *path, const json_t *root, const char *key,
                      int *out)
{
    const json_t *x = json_object_get(root, key);

    if (!x)
        return CB_OK;
    if (!json_is_integer(x) || json_integer_value(x) < 1 || json_integer_value(x) > 1000000000)
        return cb_policy_refuse(p, "preset %s: %s must be a number of tokens", path, key);
    *out = (int)json_integer_value(x);
    return CB_OK;
}

static int read_blocks(struct policy *p, const char *path, const json_t *root, int *start,
                       int *sinks, int *recent)
{
    const json_t *rows = json_object_get(root, "start");

    if (!json_is_array(rows) || (int)json_array_size(rows) != p->sh.n_kv)
        return cb_policy_refuse(p, "preset %s: \"start\" must be of %d KV heads: not of this model",
                                path, p->sh.n_kv);
    for (int kv = 0; kv < p->sh.n_kv; kv++)
        TRY(read_row(p, path, json_array_get(rows, (size_t)kv), kv, start + kv * p->sh.n_layer));
    TRY(read_count(p, path, root, "sinks", sinks));
    return read_count(p, path, root, "recent", recent);
}

int cb_preset_blocks(struct policy *p, const char *path, int *start, int *sinks, int *recent)
{
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    int err;

    if (!root)
        return cb_policy_refuse(p, "preset %s: line %d: %s", path, why.line, why.text);
    err = read_blocks(p, path, root, start, sinks, recent);
    json_decref(root);
    return err;
}

static int read_numbers(struct policy *p, const char *path, const json_t *root, const char *key,
                        double *out, int n)
{
    const json_t *a = json_object_get(root, key);
    double sum = 0;

    if (!json_is_array(a) || (int)json_array_size(a) != n)
        return cb_policy_refuse(p, "preset %s: \"%s\" must be of %d layers: not of this model",
                                path, key, n);
    for (int i = 0; i < n; i++) {
        const json_t *x = json_array_get(a, (size_t)i);
        out[i] = json_is_number(x) ? json_number_value(x) : -1;
        if (!(out[i] >= 0 && out[i] < 1e9))
            return cb_policy_refuse(p, "preset %s: %s[%d] must be a number, 0 or more", path, key,
                                    i);
        sum += out[i];
    }
    return sum > 0 ? CB_OK : cb_policy_refuse(p, "preset %s: %s is all 0", path, key);
}

int cb_preset_numbers(struct policy *p, const char *path, const char *key, double *out, int n)
{
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    int err;

    if (!root)
        return cb_policy_refuse(p, "preset %s: line %d: %s", path, why.line, why.text);
    err = read_numbers(p, path, root, key, out, n);
    json_decref(root);
    return err;
}
