/* SPDX-License-Identifier: MIT */
/* plain_text.c - text files as people have them become UTF-8 with line feeds. */
#include "plain_text.h"

#include <stdint.h>
#include <string.h>

#include "encoding.h"
#include "err.h"
#include "file.h"
#include "ints.h"
#include "utf8.h"

/* ---- what is no text ---- */

static const struct {
    const char *magic;
    size_t n, at;
    const char *what, *hint;
} kinds[] = {
    { "%PDF-", 5, 0, "a PDF", "pdftotext makes text of it" },
    { "\x1f\x8b", 2, 0, "compressed by gzip", "unpack it with gunzip" },
    { "\x28\xb5\x2f\xfd", 4, 0, "compressed by zstd", "unpack it with unzstd" },
    { "\xfd"
      "7zXZ",
      5, 0, "compressed by xz", "unpack it with unxz" },
    { "BZh", 3, 0, "compressed by bzip2", "unpack it with bunzip2" },
    { "PK\3\4", 4, 0, "a ZIP archive (also DOCX, ODT, EPUB)", "export it as text" },
    { "\xd0\xcf\x11\xe0", 4, 0, "a document of Microsoft Office", "export it as text" },
    { "GGUF", 4, 0, "a model in GGUF", "only text is read" },
    { "\x89PNG", 4, 0, "an image (PNG)", "only text is read" },
    { "\xff\xd8\xff", 3, 0, "an image (JPEG)", "only text is read" },
    { "GIF8", 4, 0, "an image (GIF)", "only text is read" },
    { "\x7f"
      "ELF",
      4, 0, "a program", "only text is read" },
    { "SQLite format 3", 16, 0, "a database", "only text is read" },
    { "ustar", 5, 257, "a tar archive", "unpack it with tar" },
};

static uint64_t little64(const unsigned char *b)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | b[i];
    return v;
}

/* safetensors: the length of a JSON header in 8 bytes, then the header */
static int is_safetensors(const struct buf *t)
{
    uint64_t n;

    if (t->n < 10)
        return 0;
    n = little64((const unsigned char *)t->s);
    return n >= 2 && n < 100000000 && t->s[8] == '{' && memchr(t->s, 0, 8) != NULL &&
           (t->s[9] == '"' || t->s[9] == '}');
}

/* 1: nearly every second byte is NUL, as in Latin text in UTF-16 */
static int looks_like_utf16(const struct buf *t, int odd)
{
    const size_t n = min_size(t->n, 4096) & ~(size_t)1;
    size_t here = 0, there = 0;

    for (size_t i = 0; i < n; i += 2) {
        here += !t->s[i + (size_t)odd];
        there += !t->s[i + (size_t)!odd];
    }
    return n >= 8 && here * 10 > n / 2 * 7 && there * 10 < n / 2;
}

static int refuse_binary(const char *name, const struct buf *t)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (t->n >= kinds[i].at + kinds[i].n &&
            !memcmp(t->s + kinds[i].at, kinds[i].magic, kinds[i].n))
            return cb_fail(CB_EFORMAT, "%s: no text: it is %s; %s", name, kinds[i].what,
                           kinds[i].hint);
    if (is_safetensors(t))
        return cb_fail(CB_EFORMAT,
                       "%s: no text: it is a file of weights (safetensors); only text "
                       "is read",
                       name);
    for (int odd = 0; odd < 2; odd++)
        if (looks_like_utf16(t, odd))
            return cb_fail(
                CB_EFORMAT,
                "%s: seems to be UTF-16%s without a byte order mark: convert it to UTF-8, as "
                "with iconv",
                name, odd ? "LE" : "BE");
    return CB_OK;
}

/* ---- UTF-16 ---- */

static uint32_t unit(const char *s, int big)
{
    const unsigned a = (unsigned char)s[0], b = (unsigned char)s[1];
    return big ? a << 8 | b : b << 8 | a;
}

static int from_utf16(struct buf *t, int big)
{
    struct buf out = { 0 };
    char utf8[4];

    cb_buf_add(&out, "", 0);
    for (size_t i = 2; i < t->n; i += 2) {
        uint32_t c = i + 1 < t->n ? unit(t->s + i, big) : 0xfffd;
        const uint32_t low = i + 3 < t->n ? unit(t->s + i + 2, big) : 0;
        if (c >= 0xd800 && c < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            i += 2;
        } else if (c >= 0xd800 && c < 0xe000) {
            c = 0xfffd;
        }
        cb_buf_add(&out, utf8, (size_t)cb_utf8_put(c, utf8));
    }
    cb_buf_free(t);
    *t = out;
    return out.failed ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}

/* ---- line ends ---- */

static void drop(struct buf *t, size_t n)
{
    memmove(t->s, t->s + n, t->n - n + 1);
    t->n -= n;
}

static void line_feeds(struct buf *t)
{
    size_t to = 0;

    for (size_t i = 0; i < t->n; i++)
        if (t->s[i] != '\r' || i + 1 == t->n || t->s[i + 1] != '\n')
            t->s[to++] = t->s[i];
    t->n = to;
    t->s[to] = '\0';
}

static int begins(const struct buf *t, const char *mark, size_t n)
{
    return t->n >= n && !memcmp(t->s, mark, n);
}

static int is_utf16(const struct buf *t)
{
    return begins(t, "\xff\xfe", 2) || begins(t, "\xfe\xff", 2);
}

static int refuse_wide(const char *name, const char *encoding)
{
    return cb_fail(CB_EFORMAT, "%s: %s is not read: convert it to UTF-8, as with iconv", name,
                   encoding);
}

static int check_kind(const char *name, const struct buf *t)
{
    if (begins(t, "\xff\xfe\0\0", 4) || begins(t, "\0\0\xfe\xff", 4))
        return refuse_wide(name, "UTF-32");
    return is_utf16(t) ? CB_OK : refuse_binary(name, t);
}

static void drop_mark(struct buf *t)
{
    if (begins(t, "\xef\xbb\xbf", 3))
        drop(t, 3);
}

int cb_plain_line(FILE *f, const char *name, int number, struct buf *line)
{
    const int rc = cb_file_line(f, name, line);

    if (rc <= 0 || number > 1)
        return rc;
    TRY(check_kind(name, line));
    if (is_utf16(line))
        return refuse_wide(name, "UTF-16");
    drop_mark(line);
    return rc;
}

int cb_plain_text(const char *name, struct buf *t, char *note)
{
    if (note)
        *note = '\0';
    if (!t->n)
        return CB_OK;
    TRY(check_kind(name, t));
    if (is_utf16(t))
        TRY(from_utf16(t, t->s[0] == '\xfe'));
    drop_mark(t);
    line_feeds(t);
    return cb_encoding_settle(name, t, note);
}
