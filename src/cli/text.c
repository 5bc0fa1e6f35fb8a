/* SPDX-License-Identifier: MIT */
/* text.c - files and prompts, read whole. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/plain_text.h"
#include "cli/output/log.h"
#include "cmd.h"

/* The name of a file in messages */
static const char *name_of(const char *path)
{
    return strcmp(path, "-") ? path : "standard input";
}

int cb_read_file(const char *path, struct buf *out)
{
    const char *name = name_of(path);
    char note[256] = "";
    int rc;

    *out = (struct buf){ 0 };
    rc = strcmp(path, "-") ? cb_file_read_path(path, out) : cb_file_read(stdin, name, out);
    if (!rc)
        rc = cb_plain_text(name, out, note);
    if (rc)
        cb_buf_free(out);
    else if (*note)
        cb_log_note("%s: %s", name, note);
    return rc;
}

static int refuse_nul(const char *path, const struct buf *t)
{
    return strlen(t->s) == t->n
               ? CB_OK
               : cb_fail(CB_EARG, "%s: has a NUL byte, which a chat template cannot carry",
                         name_of(path));
}

int cb_read_document(const char *path, struct buf *out)
{
    int rc;

    TRY(cb_read_file(path, out));
    rc = refuse_nul(path, out);
    if (!rc && !out->s[strspn(out->s, " \t\r\n")])
        rc = cb_fail(CB_EARG, "%s: has no text", name_of(path));
    if (rc)
        cb_buf_free(out);
    return rc;
}

static int hex(const char *s)
{
    static const char digits[] = "0123456789abcdef";
    int v = 0;

    for (int i = 0; i < 2; i++) {
        const char *d = s[i] ? strchr(digits, s[i] | 0x20) : NULL;
        if (!d)
            return -1;
        v = v * 16 + (int)(d - digits);
    }
    return v;
}

/* The character that \c... stands for; *used: bytes of it. -1: none, and the backslash stays. */
static int escaped(const char *s, size_t *used)
{
    static const char from[] = "nrt\\\"'", to[] = "\n\r\t\\\"'";
    const char *at = *s ? strchr(from, *s) : NULL;

    *used = 1;
    if (at)
        return to[at - from];
    *used = 3;
    return *s == 'x' ? hex(s + 1) : -1;
}

int cb_put_text(const struct opts *o, const char *text, struct buf *out)
{
    size_t used;

    if (!cb_opt_flag(o, ARG_ESCAPE))
        return cb_buf_put(out, text, strlen(text));
    for (; *text; text++) {
        const int c = *text == '\\' ? escaped(text + 1, &used) : -1;
        const char byte = c < 0 ? *text : (char)c;
        cb_buf_add(out, &byte, 1);
        text += c < 0 ? 0 : used;
    }
    return cb_buf_put(out, "", 0);
}

static int put_file(int (*read)(const char *path, struct buf *out), const char *path,
                    struct buf *out)
{
    struct buf file;
    int rc;

    TRY(read(path, &file));
    rc = cb_buf_put(out, file.s ? file.s : "", file.n);
    cb_buf_free(&file);
    return rc;
}

int cb_read_piece(const struct opts *o, const struct given *g, struct buf *out)
{
    return g->id == ARG_PROMPT ? cb_put_text(o, g->text, out)
                               : put_file(cb_read_file, g->text, out);
}

static int put_pieces(const struct opts *o, const char *between, struct buf *out)
{
    int last = -1;

    for (int i = 0; i < o->n_given; i++) {
        const struct given *g = &o->given[i];
        if (g->id != ARG_PROMPT && g->id != ARG_FILE)
            continue;
        while (last >= 0 && *between && out->n && out->s[out->n - 1] == '\n')
            out->n--;
        if (last >= 0)
            TRY(cb_buf_put(out, between, strlen(between)));
        if (g->id == ARG_FILE && *between && !cb_opt_set(o, ARG_BANK))
            TRY(put_file(cb_read_document, g->text, out));
        else
            TRY(cb_read_piece(o, g, out));
        last = g->id;
    }
    if (last == ARG_FILE && o->cmd->sets & SET_OWN_RUN && out->n && out->s[out->n - 1] == '\n')
        out->s[--out->n] = '\0';
    return CB_OK;
}

int cb_read_prompt(const struct opts *o, const char *between, struct buf *out)
{
    int rc;

    *out = (struct buf){ 0 };
    if (!cb_opt_set(o, ARG_FILE) && !cb_opt_set(o, ARG_PROMPT))
        return cb_usage("prompt: none given; use -p TEXT or -f FILE (- is standard input)");
    rc = cb_buf_put(out, "", 0);
    if (!rc)
        rc = put_pieces(o, between, out);
    if (rc)
        cb_buf_free(out);
    return rc;
}

int cb_read_system(const struct opts *o, struct buf *out, const char **text)
{
    const char *path = cb_opt_text(o, ARG_SYSTEM_FILE);

    *out = (struct buf){ 0 };
    *text = cb_opt_text(o, ARG_SYSTEM);
    if (path && cb_opt_set(o, ARG_SYSTEM))
        return cb_usage("system: given twice, also by --system-file");
    if (!path)
        return CB_OK;
    TRY(cb_read_file(path, out));
    while (out->n && out->s[out->n - 1] == '\n')
        out->s[--out->n] = '\0';
    *text = out->s;
    return refuse_nul(path, out);
}
