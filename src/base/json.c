/* SPDX-License-Identifier: MIT */
/* json.c - JSON values of texts and numbers that come from outside. */
#include "json.h"

#include <limits.h>
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

/* After the quote at s[at]: after its string */
static size_t string_end(const char *s, size_t at, size_t n)
{
    while (++at < n && s[at] != '"')
        at += s[at] == '\\';
    return at + 1;
}

/* Small values take many times their text: what jansson allocates for each, with malloc's own. */
size_t cb_json_cost(const char *s, size_t n)
{
    static const unsigned short part[UCHAR_MAX + 1] = {
        ['['] = 160, ['{'] = 288, [','] = 64, [':'] = 128, ['"'] = 80
    };
    size_t cost = n;

    for (size_t at = 0; at < n; at = s[at] == '"' ? string_end(s, at, n) : at + 1)
        cost += part[(unsigned char)s[at]];
    return cost;
}

int cb_json_fail(const char *what)
{
    return cb_fail(CB_EFORMAT, "%s: not JSON: a number is not finite, or memory ran out", what);
}
