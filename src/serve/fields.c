/* SPDX-License-Identifier: MIT */
/* fields.c - values of a request's JSON, checked. */
#include "fields.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "base/number.h"

enum { QUOTED_MOST = 1 << 14 }; /* bytes of an object in quotes */
static const double two63 = 9223372036854775808.0;

const json_t *cb_field(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

/* ---- numbers and flags, also as clients write them in quotes ---- */

static int is_blank(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && !s[strspn(s, " \t\r\n")];
}

/* The field's number, or a text that is one; a blank text counts as missing. 1: *x has it */
static int number_in(const json_t *v, double *x)
{
    const char *s = json_string_value(v);
    char *end;

    if (json_is_number(v)) {
        *x = json_number_value(v);
        return 1;
    }
    if (!s || is_blank(v))
        return 0;
    *x = cb_number(s, &end);
    return end != s && !end[strspn(end, " \t\r\n")] && isfinite(*x);
}

/* A whole number, as such, with ".0" or in quotes; one beyond 64 bits becomes the nearest. */
int cb_json_whole(const json_t *v, int64_t *out)
{
    const char *s = json_string_value(v);
    char *end;
    double x;

    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return 1;
    }
    errno = 0;
    if (s) /* exact, where a double is not */
        *out = strtoll(s, &end, 10);
    if (s && end != s && !*end && !errno)
        return 1;
    if (!number_in(v, &x) || x != floor(x))
        return 0;
    *out = x >= two63 ? INT64_MAX : x <= -two63 ? INT64_MIN : (int64_t)x;
    return 1;
}

int cb_value_real(const json_t *v, const char *name, double min, double max, double *out)
{
    double x;

    if (!v || json_is_null(v) || is_blank(v))
        return CB_OK;
    if (!number_in(v, &x))
        return cb_fail(CB_EARG, "%s: must be a number", name);
    if (x < min || x > max)
        return cb_fail(CB_EARG, "%s: must be a number from %.10g to %.10g", name, min, max);
    *out = x;
    return CB_OK;
}

int cb_field_float(const json_t *o, const char *name, double min, double max, float *out)
{
    double x = (double)*out;

    TRY(cb_value_real(cb_field(o, name), name, min, max, &x));
    *out = (float)x;
    return CB_OK;
}

int cb_field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out)
{
    const json_t *v = cb_field(o, name);
    int64_t i;

    if (!v || is_blank(v))
        return CB_OK;
    if (!cb_json_whole(v, &i))
        return cb_fail(CB_EARG, "%s: must be a whole number", name);
    if (i > max && max == CB_FIELD_MOST)
        i = max;
    if (i < min || i > max)
        return cb_fail(CB_EARG, "%s: must be a whole number from %lld to %lld", name,
                       (long long)min, (long long)max);
    *out = i;
    return CB_OK;
}

int cb_field_seed(const json_t *o, const char *name, int64_t *out)
{
    const json_t *v = cb_field(o, name);
    double x;

    if (!v || is_blank(v))
        return CB_OK;
    if (cb_json_whole(v, out) && *out < INT64_MAX)
        return CB_OK;
    if (!number_in(v, &x))
        return cb_fail(CB_EARG, "%s: must be a number", name);
    /* from 2^63 on, doubles are multiples of 2048: what they have above it */
    *out = x < 0 ? -1 : x < two63 ? (int64_t)x : (int64_t)fmod(x / 2048, two63);
    return CB_OK;
}

int cb_field_token(const json_t *v, const char *name, size_t i, int n_vocab, int32_t *id)
{
    int64_t x = -1;

    if (!cb_json_whole(v, &x) || x < 0 || x >= n_vocab)
        return cb_fail(CB_EARG, "%s: [%zu] is no token id below %d", name, i, n_vocab);
    *id = (int32_t)x;
    return CB_OK;
}

/* 1 or 0 as a flag's value has it, -1: neither */
static int flag_in(const json_t *v)
{
    static const char *const no[] = { "false", "0", "no", "off" };
    static const char *const yes[] = { "true", "1", "yes", "on" };
    const char *s = json_string_value(v);

    if (json_is_boolean(v))
        return json_is_true(v);
    if (json_is_number(v))
        return json_number_value(v) == 0 ? 0 : json_number_value(v) == 1 ? 1 : -1;
    for (int i = 0; s && i < 4; i++)
        if (!strcasecmp(s, no[i]) || !strcasecmp(s, yes[i]))
            return !strcasecmp(s, yes[i]);
    return -1;
}

int cb_field_flag(const json_t *o, const char *name, int *out)
{
    const json_t *v = cb_field(o, name);

    if (!v || is_blank(v))
        return CB_OK;
    if (flag_in(v) < 0)
        return cb_fail(CB_EARG, "%s: must be true or false", name);
    *out = flag_in(v);
    return CB_OK;
}

/* ---- texts ---- */

int cb_field_text(const json_t *o, const char *name, const char **out)
{
    const json_t *v = cb_field(o, name);

    if (v && !json_is_string(v))
        return cb_fail(CB_EARG, "%s: must be a text", name);
    if (v)
        *out = json_string_value(v);
    return CB_OK;
}

/* A number in a list of texts becomes its text there. */
static const json_t *as_text(const json_t *list, size_t i)
{
    const json_t *t = json_array_get(list, i);
    char *s = json_is_number(t) ? cb_json_dumps(t, JSON_ENCODE_ANY) : NULL;

    if (!s)
        return t;
    (void)json_array_set_new((json_t *)(uintptr_t)list, i, json_string(s));
    free(s);
    return json_array_get(list, i);
}

int cb_field_texts(const json_t *o, const char *name, int most, const char **list, int *n)
{
    const json_t *v = cb_field(o, name);
    const size_t len = json_is_array(v) ? json_array_size(v) : v != NULL;

    *n = 0;
    if (len > (size_t)most)
        return cb_fail(CB_EARG, "%s: at most %d texts", name, most);
    for (size_t i = 0; i < len; i++) {
        const json_t *t = json_is_array(v) ? as_text(v, i) : v;
        if (json_is_null(t) || json_is_false(t))
            continue;
        if (!json_is_string(t))
            return cb_fail(CB_EARG, "%s: must be a text or a list of texts", name);
        if (json_string_length(t))
            list[(*n)++] = json_string_value(t);
    }
    return CB_OK;
}

/* ---- objects and lists ---- */

/* What languages with one kind of empty value write for {} or [], and empty forms */
static int is_nothing(const json_t *v)
{
    return is_blank(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

/* An object that is written as a text of JSON takes the text's place. */
static const json_t *unquoted(const json_t *o, const char *name, const json_t *v)
{
    json_error_t why;
    json_t *j = NULL;

    if (json_is_string(v) && json_string_length(v) <= QUOTED_MOST)
        j = cb_json_read(json_string_value(v), json_string_length(v), &why);
    if (!json_is_object(j)) {
        json_decref(j);
        return v;
    }
    return json_object_set_new((json_t *)(uintptr_t)o, name, j) ? v : j;
}

int cb_field_object(const json_t *o, const char *name, const json_t **out)
{
    const json_t *v = unquoted(o, name, cb_field(o, name));

    if (v && !json_is_object(v) && is_nothing(v))
        v = NULL;
    if (v && !json_is_object(v))
        return cb_fail(CB_EARG, "%s: must be an object", name);
    *out = v;
    return CB_OK;
}

int cb_field_array(const json_t *o, const char *name, const json_t **out)
{
    const json_t *v = cb_field(o, name);

    if (v && !json_is_array(v) && is_nothing(v))
        v = NULL;
    if (v && !json_is_array(v))
        return cb_fail(CB_EARG, "%s: must be a list", name);
    *out = v;
    return CB_OK;
}
