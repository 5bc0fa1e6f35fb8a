/* SPDX-License-Identifier: MIT */
/* line.c - one line from a terminal. Here is what works without a library: backspace, Ctrl-U,
 * Ctrl-D, Ctrl-C, and pasted texts. */
#include "line.h"

#include <string.h>
#include <utf8proc.h>

#include "base/err.h"
#include "base/utf8.h"

int cb_line_open(struct line_reader *r)
{
    r->editor = NULL;
    return r->t->smart ? cb_editor_open(r, &r->editor) : CB_OK;
}

void cb_line_close(struct line_reader *r)
{
    cb_editor_close(r->editor);
    r->editor = NULL;
}

void cb_line_remember(struct line_reader *r, const char *text)
{
    if (r->editor)
        cb_editor_remember(r->editor, text);
}

/* ---- without a library ---- */

struct plain {
    struct line_reader *r;
    struct buf *out;
    int pasting;
    char seq[8]; /* an escape sequence that has begun: [n_seq] */
    int n_seq;
};

static void show_prompt(const struct plain *p)
{
    char text[128];

    p->r->prompt(p->r->arg, text, sizeof text);
    fprintf(p->r->t->screen, "%s%s", text, p->out->n ? p->out->s : "");
    fflush(p->r->t->screen);
}

static void rub_out(struct plain *p)
{
    struct buf *b = p->out;
    size_t at = b->n;
    utf8proc_int32_t c;

    if (!at)
        return;
    do
        at--;
    while (at && (b->s[at] & 0xc0) == 0x80);
    if (utf8proc_iterate((const utf8proc_uint8_t *)b->s + at, (utf8proc_ssize_t)(b->n - at), &c) <
        1)
        c = ' ';
    for (int w = utf8proc_charwidth(c); w > 0; w--)
        fputs("\b \b", p->r->t->screen);
    b->n = at;
    b->s[at] = '\0';
}

static int put_byte(struct plain *p, int c)
{
    const char byte = (char)c;

    fputc(c, p->r->t->screen);
    return cb_buf_put(p->out, &byte, 1);
}

/* A byte of an escape sequence. Those of pasting are obeyed, others dropped. */
static void sequence(struct plain *p, int c)
{
    p->seq[p->n_seq++] = (char)c;
    if (p->n_seq < (int)sizeof p->seq - 1 && (p->n_seq < 3 || c < '@'))
        return;
    p->seq[p->n_seq] = '\0';
    p->n_seq = 0;
    if (!strcmp(p->seq, "\033[200~") || !strcmp(p->seq, "\033[201~"))
        p->pasting = p->seq[4] == '0';
}

/* Takes a key; *end becomes a line_status when the line is read. */
static int take_key(struct plain *p, int key, int *end)
{
    if (key == KEY_END || (key == 4 && !p->out->n)) {
        *end = LINE_END;
    } else if (key == KEY_INTERRUPT) {
        *end = LINE_INTERRUPTED;
    } else if (key == KEY_REDRAW || key == KEY_RESUMED) {
        fputc(key == KEY_REDRAW ? '\r' : '\n', p->r->t->screen);
        show_prompt(p);
    } else if (p->n_seq || key == 033) {
        sequence(p, key);
    } else if (key == '\n' || key == '\r') {
        if (p->pasting)
            return put_byte(p, '\n');
        *end = LINE_READ;
    } else if (key == 0177 || key == '\b') {
        rub_out(p);
    } else if (key == 025) {
        while (p->out->n)
            rub_out(p);
    } else if (key >= ' ' || key == '\t') {
        return put_byte(p, key);
    }
    return CB_OK;
}

static int read_plain(struct line_reader *r, struct buf *out)
{
    struct plain p = { .r = r, .out = out };
    int end = -1, rc = CB_OK;

    show_prompt(&p);
    while (!rc && end < 0)
        rc = take_key(&p, cb_terminal_key(r->t), &end);
    fputc('\n', r->t->screen);
    return rc ? rc : end;
}

int cb_line_read(struct line_reader *r, struct buf *out)
{
    int rc;

    cb_buf_clear(out);
    TRY(cb_buf_put(out, "", 0));
    cb_terminal_begin(r->t);
    rc = r->editor ? cb_editor_read(r->editor, out) : read_plain(r, out);
    cb_terminal_end(r->t);
    return rc;
}
