/* SPDX-License-Identifier: MIT */
/* text.c - files and prompts, read whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmd.h"

static int read_all(FILE *f, const char *name, struct buf *out)
{
    static const size_t step = 1 << 16;
    char *buf = malloc(step);
    size_t n;
    int rc = buf ? cb_buf_put(out, "", 0) : cb_fail(CB_ENOMEM, "out of memory");

    while (!rc && (n = fread(buf, 1, step, f)) > 0)
        rc = cb_buf_put(out, buf, n);
    if (!rc && ferror(f))
        rc = cb_fail(CB_EIO, "%s: %s", name, strerror(errno));
    free(buf);
    return rc;
}

int cb_read_file(const char *path, struct buf *out)
{
    const int std = !strcmp(path, "-");
    FILE *f = std ? stdin : fopen(path, "rb");
    int rc;

    *out = (struct buf){ 0 };
    if (!f)
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    rc = read_all(f, std ? "standard input" : path, out);
    if (!std)
        fclose(f);
    if (rc)
        cb_buf_free(out);
    return rc;
}

int cb_read_prompt(const struct opts *o, const char *between, struct buf *out)
{
    const char *file = cb_opt_text(o, ARG_FILE), *text = cb_opt_text(o, ARG_PROMPT);
    int rc = CB_OK;

    *out = (struct buf){ 0 };
    if (!file && !text)
        return cb_usage("prompt: none given; use -p TEXT or -f FILE (- is standard input)");
    if (file)
        rc = cb_read_file(file, out);
    if (!rc && file && text && *between) {
        while (out->n && out->s[out->n - 1] == '\n')
            out->n--;
        rc = cb_buf_put(out, between, strlen(between));
    }
    if (!rc && text)
        rc = cb_buf_put(out, text, strlen(text));
    if (rc)
        cb_buf_free(out);
    return rc;
}
