/* SPDX-License-Identifier: MIT */
/* json.c - JSON values of texts and numbers that come from outside. */
#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "utf8.h"

json_t *cb_json_text(const char *s, size_t n)
{
    struct utf8_hold hold = { .n = 0 };
    char *clean = n < INT32_MAX / 3 ? cb_calloc(n + 1, 3) : NULL; /* U+FFFD has three bytes */
    json_t *j = NULL;
    int len;

    if (clean) {
        len = cb_utf8_push(&hold, s, (int)n, clean);
        len += cb_utf8_flush(&hold, clean + len);
        j = json_stringn(clean, (size_t)len);
    }
    free(clean);
    return j;
}

json_t *cb_json_str(const char *s)
{
    return cb_json_text(s, strlen(s));
}

json_t *cb_json_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static void keep_if(json_t **holder, int failed)
{
    if (!failed)
        return;
    json_decref(*holder);
    *holder = NULL;
}

void cb_json_add(json_t **array, json_t *x)
{
    keep_if(array, json_array_append_new(*array, x));
}

void cb_json_set(json_t **object, const char *key, json_t *x)
{
    keep_if(object, json_object_set_new(*object, key, x));
}

int cb_json_fail(const char *what)
{
    return cb_fail(CB_EFORMAT, "%s: not JSON: a number is not finite, or memory ran out", what);
}
