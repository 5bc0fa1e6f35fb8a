/* SPDX-License-Identifier: MIT */
/* text.c - files and prompts, read whole. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "cmd.h"

int cb_read_file(const char *path, struct buf *out)
{
    int rc;

    *out = (struct buf){ 0 };
    rc = strcmp(path, "-") ? cb_file_read_path(path, out)
                           : cb_file_read(stdin, "standard input", out);
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
