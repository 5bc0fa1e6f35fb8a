/* SPDX-License-Identifier: MIT */
/* line_edit.c - lines edited by libedit, with a history and completion. Libedit knows no bracketed
 * paste, so that is here. */
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/err.h"
#include "base/utf8.h"
#include "history.h"
#include "line.h"

enum {
    CTRL_C = 3,
    CTRL_R = 18,
    CTRL_S = 19,
    REDRAW = 036, /* Ctrl-^, which nobody needs: a key of our own that redraws the prompt */
    ESCAPE = 033,
    N_HISTORY = 1000
};

struct editor {
    const struct line_reader *r;
    EditLine *el;
    HistoryW *history;
    wchar_t prompt[192];
    wchar_t last;  /* the character that libedit got last */
    int searching; /* 1: Ctrl-R reads what to look for; another key would end that */
    int ended, interrupted;
};

static struct editor *editor_of(EditLine *el)
{
    void *e = NULL;

    el_wget(el, EL_CLIENTDATA, &e);
    return e;
}

/* ---- UTF-8 and wide characters, whatever the locale ---- */

/* s[n] -> a text that ends in NUL; the caller frees it. NULL: out of memory */
static wchar_t *widen(const char *s, size_t n)
{
    wchar_t *w = cb_calloc(n + 1, sizeof *w);
    size_t to = 0;

    for (size_t at = 0; w && at < n;) {
        const int len = cb_utf8_len(s + at, n - at);
        uint32_t c = (unsigned char)s[at];
        if (len > 1) {
            c &= 0x7fu >> len;
            for (int i = 1; i < len; i++)
                c = c << 6 | ((unsigned char)s[at + i] & 0x3f);
        }
        w[to++] = len ? (wchar_t)c : L'\xfffd';
        at += len ? (size_t)len : 1;
    }
    return w;
}

static int narrow(const wchar_t *w, size_t n, struct buf *out)
{
    char c[4];

    for (size_t i = 0; i < n; i++)
        cb_buf_add(out, c, (size_t)cb_utf8_put((uint32_t)w[i], c));
    return cb_buf_put(out, "", 0);
}

static int insert(EditLine *el, const char *s, size_t n)
{
    wchar_t *w = widen(s, n);
    const int failed = !w || (*w && el_winsertstr(el, w));

    free(w);
    return failed ? CC_ERROR : CC_REFRESH;
}

/* ---- keys ---- */

/* The character that begins with this byte; the other bytes are read. */
static wchar_t character(const struct editor *e, int first)
{
    const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    char b[4] = { (char)first };
    wchar_t c = L'\xfffd', *w;
    int key;

    for (int i = 1; i <= more; i++) {
        if ((key = cb_terminal_key(e->r->t)) < 0)
            return c;
        b[i] = (char)key;
    }
    w = widen(b, (size_t)more + 1);
    if (w)
        c = *w;
    free(w);
    return c;
}

static int key_char(struct editor *e, int key, wchar_t *c)
{
    if (key == KEY_INTERRUPT) {
        *c = CTRL_C;
    } else if (key == KEY_REDRAW) {
        el_resize(e->el);
        if (e->searching || e->last == ESCAPE)
            return 0;
        *c = REDRAW;
    } else if (key == KEY_RESUMED) {
        el_wset(e->el, EL_PREP_TERM, 0);
        el_wset(e->el, EL_PREP_TERM, 1);
        el_wset(e->el, EL_REFRESH);
        return 0;
    } else if (key == REDRAW) {
        return 0;
    } else {
        *c = key < 0x80 ? (wchar_t)key : character(e, key);
    }
    return 1;
}

static int next_char(EditLine *el, wchar_t *c)
{
    struct editor *e = editor_of(el);
    int key;

    do {
        key = cb_terminal_key(e->r->t);
        if (key == KEY_END) {
            e->ended = 1;
            return 0;
        }
    } while (!key_char(e, key, c));
    e->searching |= *c == CTRL_R || *c == CTRL_S;
    e->last = *c;
    return 1;
}

/* ---- functions bound to keys ---- */

/* Ctrl-C: clears the line; on an empty line, ends the reading. */
static unsigned char interrupt(EditLine *el, int key)
{
    const LineInfoW *li = el_wline(el);
    const int n = (int)(li->lastchar - li->buffer);
    struct editor *e = editor_of(el);

    (void)key;
    e->searching = 0;
    e->interrupted = !n;
    if (!n)
        return CC_NEWLINE;
    el_cursor(el, (int)(li->lastchar - li->cursor));
    el_deletestr(el, n);
    return CC_REFRESH;
}

static unsigned char redraw(EditLine *el, int key)
{
    (void)el;
    (void)key;
    return CC_REFRESH;
}

/* What comes before the end of a bracketed paste */
static int read_paste(const struct editor *e, struct buf *in)
{
    static const char end[] = "\033[201~";
    const size_t n_end = sizeof end - 1;

    for (;;) {
        const int key = cb_terminal_key(e->r->t);
        const char c = key == '\r' ? '\n' : (char)key;
        if (key == KEY_END || key == KEY_INTERRUPT)
            return CB_ECANCEL;
        if (key < 0)
            continue;
        TRY(cb_buf_put(in, &c, 1));
        if (in->n >= n_end && !memcmp(in->s + in->n - n_end, end, n_end)) {
            in->n -= n_end;
            in->s[in->n] = '\0';
            return CB_OK;
        }
    }
}

static unsigned char paste(EditLine *el, int key)
{
    struct buf in = { 0 };
    int rc = read_paste(editor_of(el), &in);

    (void)key;
    while (!rc && in.n && in.s[in.n - 1] == '\n') /* Enter sends it */
        in.n--;
    if (!rc)
        rc = insert(el, in.s ? in.s : "", cb_utf8_plain(in.s, in.n, "\n\t"));
    else
        rc = CC_ERROR;
    cb_buf_free(&in);
    return (unsigned char)rc;
}

/* ---- completion ---- */

/* How much of the first candidate all have; list[n]: candidates separated by newlines */
static size_t in_common(const char *list, size_t n)
{
    size_t common = strcspn(list, "\n");

    for (size_t at = 0; at < n; at += strcspn(list + at, "\n") + 1)
        for (size_t i = 0; i < common; i++)
            if (list[at + i] != list[i])
                common = i;
    while (common && (list[common] & 0xc0) == 0x80) /* no part of a character */
        common--;
    return common;
}

/* Shows the candidates below the line. */
static unsigned char show(const struct editor *e, const struct buf *list)
{
    const int columns = cb_terminal_columns(fileno(e->r->t->screen));
    int at = 0;

    fputc('\n', e->r->t->screen);
    for (const char *s = list->s; *s; s += strspn(s, "\n")) {
        const int n = (int)strcspn(s, "\n");
        if (at && at + n + 2 > columns) {
            fputc('\n', e->r->t->screen);
            at = 0;
        }
        fprintf(e->r->t->screen, "%.*s  ", n, s);
        at += n + 2;
        s += n;
    }
    fputc('\n', e->r->t->screen);
    return CC_REDISPLAY;
}

static unsigned char apply(EditLine *el, const char *typed, const struct buf *list)
{
    const size_t common = in_common(list->s, list->n);
    const int only = !list->s[strcspn(list->s, "\n")];
    int status;
    wchar_t *w;

    if (!only && common <= strlen(typed))
        return show(editor_of(el), list);
    w = widen(typed, strlen(typed));
    if (!w)
        return CC_ERROR;
    if (*w)
        el_deletestr(el, (int)wcslen(w));
    free(w);
    status = insert(el, list->s, common);
    if (only && common && !strchr("/:,=", list->s[common - 1]))
        status = insert(el, " ", 1);
    return (unsigned char)status;
}

static unsigned char complete(EditLine *el, int key)
{
    const LineInfoW *li = el_wline(el);
    const struct line_reader *r = editor_of(el)->r;
    struct buf head = { 0 }, list = { 0 };
    unsigned char status = CC_ERROR;
    size_t from = 0;
    int rc = narrow(li->buffer, (size_t)(li->cursor - li->buffer), &head);

    (void)key;
    if (!rc)
        rc = r->complete(r->arg, head.s, &from, &list);
    while (!rc && list.n && list.s[list.n - 1] == '\n')
        list.s[--list.n] = '\0';
    if (!rc && list.n)
        status = apply(el, head.s + from, &list);
    cb_buf_free(&head);
    cb_buf_free(&list);
    return status;
}

/* ---- the editor ---- */

static wchar_t *prompt(EditLine *el)
{
    struct editor *e = editor_of(el);
    char text[128];
    wchar_t *w;

    e->r->prompt(e->r->arg, text, sizeof text);
    w = widen(text, strlen(text));
    if (w) /* what stands between two \1 takes no place on the screen */
        swprintf(e->prompt, sizeof e->prompt / sizeof *e->prompt,
                 e->r->colour ? L"\1\033[1;32m\1%ls\1\033[0m\1" : L"%ls", w);
    free(w);
    return e->prompt;
}

static int remember_wide(struct editor *e, const char *text)
{
    HistEventW event;
    wchar_t *w = widen(text, strlen(text));
    const int failed = !w || history_w(e->history, &event, H_ENTER, w) < 0;

    free(w);
    return failed ? CB_ENOMEM : CB_OK;
}

static int load_entry(void *arg, const char *text)
{
    return remember_wide(arg, text);
}

static int set_up(struct editor *e)
{
    HistEventW event;

    e->el = el_init("ctxbank", stdin, e->r->t->screen, e->r->t->screen);
    e->history = history_winit();
    if (!e->el || !e->history)
        return cb_fail(CB_ENOMEM, "out of memory: line editing");
    history_w(e->history, &event, H_SETSIZE, (int)N_HISTORY);
    history_w(e->history, &event, H_SETUNIQUE, 1);
    el_wset(e->el, EL_CLIENTDATA, e);
    el_wset(e->el, EL_EDITOR, L"emacs");
    el_wset(e->el, EL_SIGNAL, 0);
    el_wset(e->el, EL_GETCFN, next_char);
    el_wset(e->el, EL_PROMPT_ESC, prompt, L'\1');
    el_wset(e->el, EL_HIST, history_w, e->history);
    el_source(e->el, NULL); /* the user's ~/.editrc */
    el_wset(e->el, EL_ADDFN, L"chat-interrupt", L"Clear the line", interrupt);
    el_wset(e->el, EL_ADDFN, L"chat-redraw", L"Redraw the prompt", redraw);
    el_wset(e->el, EL_ADDFN, L"chat-paste", L"Insert a bracketed paste", paste);
    el_wset(e->el, EL_ADDFN, L"chat-complete", L"Complete a command", complete);
    el_wset(e->el, EL_BIND, L"^C", L"chat-interrupt", NULL);
    el_wset(e->el, EL_BIND, L"\036", L"chat-redraw", NULL);
    el_wset(e->el, EL_BIND, L"\033[200~", L"chat-paste", NULL);
    el_wset(e->el, EL_BIND, L"\t", L"chat-complete", NULL);
    el_wset(e->el, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
    return cb_history_load(N_HISTORY, load_entry, e);
}

int cb_editor_open(const struct line_reader *r, struct editor **out)
{
    struct editor *e = cb_calloc(1, sizeof *e);
    int rc;

    *out = NULL;
    if (!e)
        return CB_ENOMEM;
    e->r = r;
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8"))
        setlocale(LC_CTYPE, "C.UTF-8"); /* else libedit shows letters as numbers */
    rc = set_up(e);
    if (rc)
        cb_editor_close(e);
    else
        *out = e;
    return rc;
}

void cb_editor_close(struct editor *e)
{
    if (!e)
        return;
    if (e->el)
        el_end(e->el);
    if (e->history)
        history_wend(e->history);
    free(e);
}

int cb_editor_read(struct editor *e, struct buf *out)
{
    const wchar_t *w;
    int n = 0;

    e->ended = e->interrupted = e->searching = 0;
    e->last = 0;
    w = el_wgets(e->el, &n);
    if (e->interrupted || e->ended || !w || n <= 0) {
        fputc('\n', e->r->t->screen);
        return e->interrupted ? LINE_INTERRUPTED : LINE_END;
    }
    TRY(narrow(w, (size_t)n - (w[n - 1] == L'\n'), out));
    return LINE_READ;
}

void cb_editor_remember(struct editor *e, const char *text)
{
    (void)remember_wide(e, text);
    cb_history_add(text);
}
