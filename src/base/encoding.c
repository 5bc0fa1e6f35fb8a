/* SPDX-License-Identifier: MIT */
/* encoding.c - texts that are not UTF-8: which encoding they seem to have, and Windows-1252, of
 * which Latin-1 texts are a part. */
#include "encoding.h"

#include <stdint.h>
#include <stdio.h>

#include "err.h"
#include "utf8.h"

enum { NOTE = 256 };

/* 0x80 to 0x9f in Windows-1252; 0: no character */
static const uint16_t windows[32] = {
    0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178,
};

static uint32_t character(unsigned char b)
{
    return b < 0x80 || b > 0x9f ? b : windows[b - 0x80];
}

/* What the bytes of a text are */
struct census {
    size_t first, line;   /* of the first byte that is not UTF-8; its line from 1 */
    size_t stray;         /* bytes that are not UTF-8 */
    size_t several;       /* characters of several bytes */
    size_t visible, high; /* bytes other than blanks; of those the ones beyond ASCII */
    int binary;           /* a control character, or a byte that Windows-1252 has not */
};

static void count(const struct buf *t, struct census *c)
{
    size_t line = 1;

    *c = (struct census){ 0 };
    for (size_t i = 0; i < t->n;) {
        const unsigned char b = (unsigned char)t->s[i];
        const int len = cb_utf8_len(t->s + i, t->n - i);
        if (!len && !c->stray++) {
            c->first = i;
            c->line = line;
        }
        line += b == '\n';
        c->several += len > 1;
        c->visible += b > ' ';
        c->high += !len;
        c->binary |= !character(b) || (b < ' ' && (b < '\t' || b > '\r') && b != 0x1b);
        i += len ? (size_t)len : 1;
    }
}

static int from_windows(struct buf *t)
{
    struct buf out = { 0 };
    char utf8[4];

    cb_buf_add(&out, "", 0);
    for (size_t i = 0; i < t->n; i++)
        cb_buf_add(&out, utf8, (size_t)cb_utf8_put(character((unsigned char)t->s[i]), utf8));
    if (out.failed) {
        cb_buf_free(&out);
        return cb_fail(CB_ENOMEM, "out of memory");
    }
    cb_buf_free(t);
    *t = out;
    return CB_OK;
}

int cb_encoding_settle(const char *name, struct buf *t, char *note)
{
    struct census c;
    char at[96];

    if (note)
        *note = '\0';
    count(t, &c);
    if (!c.stray)
        return CB_OK;
    snprintf(at, sizeof at, "byte 0x%02x at offset %zu, line %zu",
             (unsigned)(unsigned char)t->s[c.first], c.first, c.line);
    if (!note || (!c.several && !c.binary && c.high * 4 > c.visible && c.visible >= 16))
        return cb_fail(CB_EFORMAT, "%s: not UTF-8 (%s)%s: convert it to UTF-8, as with iconv", name,
                       at, c.high * 4 > c.visible ? "" : ", perhaps WINDOWS-1252");
    if (c.several || c.binary) {
        snprintf(note, NOTE, "bytes that are not UTF-8: %zu, the first (%s) %s", c.stray, at,
                 c.stray == 1 ? "stays one" : "and the others stay bytes");
        return CB_OK;
    }
    snprintf(note, NOTE, "not UTF-8 (%s): read as Windows-1252; iconv converts other encodings",
             at);
    return from_windows(t);
}
