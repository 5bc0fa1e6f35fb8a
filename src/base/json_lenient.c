/* SPDX-License-Identifier: MIT */
/* json_lenient.c - JSON as programs write it: its text is repaired, then read. */
#include "json_lenient.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "json.h"
#include "number.h"
#include "utf8.h"

/* ---- memory ---- */

/* While a text is read, memory that runs out comes from here: the reader does not expect a failure
 * (it asserts). The value is then dropped. */
static _Thread_local struct {
    char *begin, *at, *end;
    int failed;
} reserve;

static void *from_reserve(size_t n)
{
    void *p = malloc(n);

    if (p)
        return p;
    reserve.failed = 1;
    n = (n + 15) & ~(size_t)15;
    if (n > (size_t)(reserve.end - reserve.at))
        return NULL;
    p = reserve.at;
    reserve.at += n;
    return p;
}

static void give_back(void *p)
{
    const char *c = p;

    if (!reserve.begin || c < reserve.begin || c >= reserve.end)
        free(p);
}

void cb_json_watch(void)
{
    json_set_alloc_funcs(from_reserve, give_back);
}

void cb_json_forget(void)
{
    reserve.failed = 0;
}

int cb_json_failed(void)
{
    return reserve.failed;
}

static json_t *load(const char *s, size_t n, size_t flags, json_error_t *why)
{
    const size_t bytes = cb_json_cost(s, n) + 4 * n + 4096;
    const int before = reserve.failed;
    json_t *j = NULL;

    reserve.begin = reserve.at = malloc(bytes); /* untouched, it takes no memory */
    reserve.failed = !reserve.begin;
    if (reserve.begin) {
        reserve.end = reserve.begin + bytes;
        j = json_loadb(s, n, flags, why);
    }
    if (reserve.failed) {
        json_decref(j);
        j = NULL;
        *why = (json_error_t){ .line = 1, .text = "out of memory" };
        why->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory;
    }
    free(reserve.begin);
    reserve.begin = reserve.at = reserve.end = NULL;
    reserve.failed |= before;
    return j;
}

/* Without the watch, jansson calls some failed allocations errors of syntax: a text that it refuses
 * is read again after more memory than it takes was there. */
int cb_json_load(const char *text, size_t n, size_t flags, json_error_t *why, json_t **out)
{
    for (int i = 0; i < 2; i++) {
        *out = load(text, n, flags, why);
        if (*out)
            return CB_OK;
        if (!*why->text || json_error_code(why) == json_error_out_of_memory)
            return cb_fail(CB_ENOMEM, "JSON: out of memory");
    }
    return CB_EFORMAT;
}

int cb_json_parse(const char *text, size_t n, const char *what, json_t **out)
{
    json_error_t e;
    const int err = cb_json_load(text, n, JSON_DECODE_ANY, &e, out);

    if (err == CB_ENOMEM)
        return cb_fail(CB_ENOMEM, "%s: out of memory", what);
    return err ? cb_fail(CB_EFORMAT, "%s: not JSON: %s", what, e.text) : CB_OK;
}

char *cb_json_dumps(const json_t *j, size_t flags)
{
    const int before = reserve.failed;
    char *text;

    reserve.failed = 0;
    text = json_dumps(j, flags);
    if (reserve.failed) {
        free(text);
        text = NULL;
    }
    reserve.failed |= before;
    return text;
}

int cb_json_unpack(const json_t *j, const char *fmt, ...)
{
    json_error_t why = { .line = -1 };
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = json_vunpack_ex((json_t *)(uintptr_t)j, &why, 0, fmt, ap);
    va_end(ap);
    if (rc && json_error_code(&why) == json_error_out_of_memory)
        return cb_fail(CB_ENOMEM, "JSON: out of memory");
    return rc ? CB_EFORMAT : CB_OK;
}

json_t *cb_json_deep_copy(const json_t *j)
{
    const int before = reserve.failed;
    json_t *copy;

    reserve.failed = 0;
    copy = json_deep_copy(j);
    if (reserve.failed) {
        json_decref(copy);
        copy = NULL;
    }
    reserve.failed |= before;
    return copy;
}

int cb_json_dumpf(const json_t *j, FILE *f, size_t flags)
{
    const int before = reserve.failed;
    int rc;

    reserve.failed = 0;
    rc = json_dumpf(j, f, flags);
    if (reserve.failed)
        rc = cb_fail(CB_ENOMEM, "JSON: out of memory");
    else if (rc)
        rc = ferror(f) ? cb_fail(CB_EIO, "output: %s", strerror(errno))
                       : cb_fail(CB_ENOMEM, "JSON: out of memory");
    reserve.failed |= before;
    return rc;
}

/* ---- repairs ---- */

static const char unknown[] = "\xef\xbf\xbd"; /* U+FFFD */

/* ---- strings ---- */

/* The four digits at s -> a number, or -1 */
static int hex4(const char *s, size_t n)
{
    int v = 0;

    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        const char *at =
            s[i] ? strchr(digits, s[i] >= 'A' && s[i] <= 'F' ? s[i] + 32 : s[i]) : NULL;
        if (!at)
            return -1;
        v = v * 16 + (int)(at - digits);
    }
    return v;
}

static int is_high(int c)
{
    return c >= 0xd800 && c < 0xdc00;
}

static int is_low(int c)
{
    return c >= 0xdc00 && c < 0xe000;
}

/* The escape at s[i] -> how many bytes it takes */
static size_t escape(const char *s, size_t n, size_t i, struct buf *out)
{
    const int c = n - i > 2 && s[i + 1] == 'u' ? hex4(s + i + 2, n - i - 2) : -1;
    const int next = is_high(c) && n - i > 8 && s[i + 6] == '\\' && s[i + 7] == 'u'
                         ? hex4(s + i + 8, n - i - 8)
                         : -1;

    if (is_high(c) && is_low(next)) {
        cb_buf_add(out, s + i, 12);
        return 12;
    }
    if (!c || is_high(c) || is_low(c)) {
        cb_buf_text(out, unknown);
        return 6;
    }
    cb_buf_add(out, s + i, n - i > 1 ? 2 : 1);
    return n - i > 1 ? 2 : 1;
}

/* The string whose quote is at s[i] -> the place after it */
static size_t string(const char *s, size_t n, size_t i, struct buf *out)
{
    cb_buf_add(out, s + i++, 1);
    while (i < n && s[i] != '"') {
        const int len = cb_utf8_len(s + i, n - i);
        if (s[i] == '\\') {
            i += escape(s, n, i, out);
        } else if ((unsigned char)s[i] < 0x20) {
            if (s[i])
                cb_buf_print(out, "\\u%04x", (unsigned)s[i]);
            else
                cb_buf_text(out, unknown);
            i++;
        } else if (len) {
            cb_buf_add(out, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            cb_buf_text(out, unknown);
            i++;
        }
    }
    if (i < n)
        cb_buf_add(out, s + i++, 1);
    return i;
}

/* ---- numbers and words ---- */

static int in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* The number at s[i] -> the place after it. One beyond 64 bits becomes a real. */
static size_t number(const char *s, size_t n, size_t i, struct buf *out)
{
    size_t end = i, digits;
    int whole;
    char *text;
    double x;

    while (end < n && in_number(s[end]))
        end++;
    digits = end - i;
    whole =
        !memchr(s + i, '.', digits) && !memchr(s + i, 'e', digits) && !memchr(s + i, 'E', digits);
    text = strndup(s + i, digits);
    out->failed |= !text;
    x = text ? cb_number(text, NULL) : 0;
    errno = 0;
    if (text && isinf(x))
        cb_buf_text(out, x < 0 ? "-1e308" : "1e308");
    else
        cb_buf_add(out, s + i, digits);
    if (text && whole && !isinf(x) && (strtoll(text, NULL, 10), errno == ERANGE))
        cb_buf_text(out, ".0");
    free(text);
    return end;
}

/* NaN and Infinity, as some programs print them. 0: none is here */
static size_t no_number(const char *s, size_t n, size_t i)
{
    static const char *const words[] = { "NaN", "Infinity", "-Infinity" };

    for (int k = 0; k < 3; k++)
        if (n - i >= strlen(words[k]) && !memcmp(s + i, words[k], strlen(words[k])))
            return strlen(words[k]);
    return 0;
}

static void repair(const char *s, size_t n, struct buf *out)
{
    size_t i = 0, len;

    while (i < n && !out->failed) {
        if (s[i] == '"') {
            i = string(s, n, i, out);
        } else if ((len = no_number(s, n, i)) > 0) {
            cb_buf_text(out, "null");
            i += len;
        } else if (s[i] == '-' || (s[i] >= '0' && s[i] <= '9')) {
            i = number(s, n, i, out);
        } else {
            cb_buf_add(out, s + i++, 1);
        }
    }
}

json_t *cb_json_read(const char *s, size_t n, json_error_t *why)
{
    struct buf text = { 0 };
    json_error_t second;
    json_t *j;

    if (n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3)) {
        s += 3;
        n -= 3;
    }
    j = load(s, n, JSON_DECODE_ANY, why);
    if (j || json_error_code(why) == json_error_out_of_memory)
        return j;
    repair(s, n, &text);
    if (!text.failed && text.n)
        j = load(text.s, text.n, JSON_DECODE_ANY, &second);
    if (text.failed)
        why->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory;
    else if (!j && text.n && json_error_code(&second) == json_error_out_of_memory)
        *why = second;
    cb_buf_free(&text);
    return j;
}
