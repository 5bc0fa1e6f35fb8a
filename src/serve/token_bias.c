/* SPDX-License-Identifier: MIT */
/* token_bias.c - the logit_bias of a request: tokens by their ids or texts. */
#include "token_bias.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "fields.h"

struct reading {
    const cb_model *model;
    struct logit_bias **list;
    int *n;
};

/* A number of any form, or false -> what is added */
static int read_value(const json_t *v, const char *key, float *out)
{
    double x = 0;

    if (json_is_false(v))
        x = -INFINITY;
    else if (cb_value_real(v, key, -1e30, 1e30, &x))
        return cb_fail(CB_EARG, "logit_bias: %.32s: must be a number", key);
    /* -100 bans a token, as clients expect */
    *out = x <= -100 ? -INFINITY : (float)fmin(x, 1000);
    return CB_OK;
}

static int add(struct reading *r, int32_t id, float bias)
{
    TRY(cb_grow_by_one(r->list, *r->n, sizeof **r->list));
    (*r->list)[(*r->n)++] = (struct logit_bias){ id, bias };
    return CB_OK;
}

/* All tokens of a text */
static int add_text(struct reading *r, const char *text, float bias)
{
    enum { LONGEST = 256 };
    int32_t *ids = NULL;
    int n = 0, rc = CB_OK;

    if (strlen(text) > LONGEST)
        return cb_fail(CB_EARG, "logit_bias: %.32s...: a text of at most %d bytes", text, LONGEST);
    TRY(cb_tokenize(r->model, text, strlen(text), 0, &ids, &n));
    for (int i = 0; i < n && !rc; i++)
        rc = add(r, ids[i], bias);
    free(ids);
    return rc;
}

/* key: an id in digits, or a text */
static int add_key(struct reading *r, const char *key, const json_t *value)
{
    char *end;
    const long id = strtol(key, &end, 10);
    float bias;

    if (json_is_null(value))
        return CB_OK;
    TRY(read_value(value, key, &bias));
    if (*end || end == key)
        return add_text(r, key, bias);
    if (id < 0 || id >= cb_n_vocab(r->model))
        return cb_fail(CB_EARG, "logit_bias: %.32s: there is no such token", key);
    return add(r, (int32_t)id, bias);
}

static int add_pair(struct reading *r, const json_t *pair, size_t i)
{
    const json_t *key = json_array_get(pair, 0), *value = json_array_get(pair, 1);
    int32_t id;
    float bias;

    if (json_array_size(pair) != 2)
        return cb_fail(CB_EARG, "logit_bias: [%zu]: must be a token and a number", i);
    if (json_is_string(key))
        return add_key(r, json_string_value(key), value);
    TRY(cb_field_token(key, "logit_bias", i, cb_n_vocab(r->model), &id));
    TRY(read_value(value, "a token", &bias));
    return add(r, id, bias);
}

int cb_token_bias_read(const cb_model *m, const json_t *request, struct logit_bias **list, int *n)
{
    struct reading r = { m, list, n };
    const json_t *o, *pair, *pairs = cb_field(request, "logit_bias");
    const char *key;
    json_t *v;
    size_t i;

    *list = NULL;
    *n = 0;
    if (json_array_size(pairs)) {
        json_array_foreach(pairs, i, pair) TRY(add_pair(&r, pair, i));
        return CB_OK;
    }
    TRY(cb_field_object(request, "logit_bias", &o));
    json_object_foreach((json_t *)(uintptr_t)o, key, v) TRY(add_key(&r, key, v));
    return CB_OK;
}
