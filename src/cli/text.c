/* SPDX-License-Identifier: MIT */
/* text.c - files and prompts, read whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmd.h"

int cb_text_add(struct text *t, const char *s, size_t n)
{
    char *p = n < PTRDIFF_MAX - t->n ? cb_realloc(t->s, t->n + n + 1, 1) : NULL;

    if (!p)
        return cb_fail(CB_ENOMEM, "out of memory: a text of more than %zu bytes", t->n);
    t->s = p;
    if (n)
        memcpy(p + t->n, s, n);
    t->n += n;
    p[t->n] = 0;
    return CB_OK;
}

static int read_all(FILE *f, const char *name, struct text *out)
{
    static const size_t step = 1 << 16;
    char *buf = malloc(step);
    size_t n;
    int rc = buf ? cb_text_add(out, "", 0) : cb_fail(CB_ENOMEM, "out of memory");

    while (!rc && (n = fread(buf, 1, step, f)) > 0)
        rc = cb_text_add(out, buf, n);
    if (!rc && ferror(f))
        rc = cb_fail(CB_EIO, "%s: %s", name, strerror(errno));
    free(buf);
    return rc;
}

int cb_read_file(const char *path, struct text *out)
{
    const int std = !strcmp(path, "-");
    FILE *f = std ? stdin : fopen(path, "rb");
    int rc;

    *out = (struct text){ 0 };
    if (!f)
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    rc = read_all(f, std ? "standard input" : path, out);
    if (!std)
        fclose(f);
    if (rc) {
        free(out->s);
        *out = (struct text){ 0 };
    }
    return rc;
}

int cb_read_prompt(const struct opts *o, const char *between, struct text *out)
{
    const char *file = cb_opt_text(o, ARG_FILE), *text = cb_opt_text(o, ARG_PROMPT);
    int rc = CB_OK;

    *out = (struct text){ 0 };
    if (!file && !text)
        return cb_usage("prompt: none given; use -p TEXT or -f FILE (- is standard input)");
    if (file)
        rc = cb_read_file(file, out);
    if (!rc && file && text && *between) {
        while (out->n && out->s[out->n - 1] == '\n')
            out->n--;
        rc = cb_text_add(out, between, strlen(between));
    }
    if (!rc && text)
        rc = cb_text_add(out, text, strlen(text));
    if (rc) {
        free(out->s);
        *out = (struct text){ 0 };
    }
    return rc;
}
