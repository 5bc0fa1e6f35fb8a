/* SPDX-License-Identifier: MIT */
/* fields.c - values of a request's JSON, checked. */
#include "fields.h"

#include "base/err.h"

const json_t *cb_field(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

static int field_real(const json_t *o, const char *name, double min, double max, double *out)
{
    const json_t *v = cb_field(o, name);

    if (!v)
        return CB_OK;
    if (!json_is_number(v))
        return cb_fail(CB_EARG, "%s: must be a number", name);
    if (json_number_value(v) < min || json_number_value(v) > max)
        return cb_fail(CB_EARG, "%s: must be a number from %.10g to %.10g", name, min, max);
    *out = json_number_value(v);
    return CB_OK;
}

int cb_field_float(const json_t *o, const char *name, double min, double max, float *out)
{
    double x = (double)*out;

    TRY(field_real(o, name, min, max, &x));
    *out = (float)x;
    return CB_OK;
}

int cb_field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out)
{
    const json_t *v = cb_field(o, name);
    const double x = json_number_value(v);

    if (!v)
        return CB_OK;
    /* 3.0 is a whole number too: some clients write so */
    if (!json_is_integer(v) &&
        !(json_is_real(v) && x >= -9e15 && x <= 9e15 && (double)(int64_t)x == x))
        return cb_fail(CB_EARG, "%s: must be a whole number", name);
    const int64_t i = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
    if (i < min || i > max)
        return cb_fail(CB_EARG, "%s: must be a whole number from %lld to %lld", name,
                       (long long)min, (long long)max);
    *out = i;
    return CB_OK;
}

int cb_field_flag(const json_t *o, const char *name, int *out)
{
    const json_t *v = cb_field(o, name);

    if (v && !json_is_boolean(v))
        return cb_fail(CB_EARG, "%s: must be true or false", name);
    if (v)
        *out = json_is_true(v);
    return CB_OK;
}

int cb_field_text(const json_t *o, const char *name, const char **out)
{
    const json_t *v = cb_field(o, name);

    if (v && !json_is_string(v))
        return cb_fail(CB_EARG, "%s: must be a text", name);
    if (v)
        *out = json_string_value(v);
    return CB_OK;
}

int cb_field_texts(const json_t *o, const char *name, int most, const char **list, int *n)
{
    const json_t *v = cb_field(o, name);
    const size_t len = json_is_array(v) ? json_array_size(v) : v != NULL;

    *n = 0;
    if (len > (size_t)most)
        return cb_fail(CB_EARG, "%s: at most %d texts", name, most);
    for (size_t i = 0; i < len; i++) {
        const json_t *t = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(t))
            return cb_fail(CB_EARG, "%s: must be a text or a list of texts", name);
        if (json_string_length(t))
            list[(*n)++] = json_string_value(t);
    }
    return CB_OK;
}

int cb_field_object(const json_t *o, const char *name, const json_t **out)
{
    const json_t *v = cb_field(o, name);

    if (v && !json_is_object(v))
        return cb_fail(CB_EARG, "%s: must be an object", name);
    *out = v;
    return CB_OK;
}

int cb_field_array(const json_t *o, const char *name, const json_t **out)
{
    const json_t *v = cb_field(o, name);

    if (v && !json_is_array(v))
        return cb_fail(CB_EARG, "%s: must be a list", name);
    *out = v;
    return CB_OK;
}
