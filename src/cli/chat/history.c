/* SPDX-License-Identifier: MIT */
/* history.c - what was typed in earlier conversations. An entry is a line, in which \n stands for a
 * line end and \\ for a backslash. Entries are appended as they come, so that two conversations at
 * a time lose none. */
#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"

enum { KEEP_BYTES = 1 << 20 }; /* a longer file loses its older half when it is read */

/* The path, as the XDG base directory specification has it; its folders are made. 0: there is none
 */
static int history_path(char *path, size_t size)
{
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const int n = xdg && *xdg == '/' ? snprintf(path, size, "%s/ctxbank/chat_history", xdg)
                  : home && *home
                      ? snprintf(path, size, "%s/.local/state/ctxbank/chat_history", home)
                      : -1;

    if (n < 0 || (size_t)n >= size)
        return 0;
    for (char *c = strchr(path + 1, '/'); c; c = strchr(c + 1, '/')) {
        *c = '\0';
        (void)mkdir(path, 0700);
        *c = '/';
    }
    return 1;
}

static void unescape(struct buf *line)
{
    size_t to = 0;

    for (size_t at = 0; at < line->n; at++) {
        if (line->s[at] == '\\' && at + 1 < line->n)
            line->s[to++] = line->s[++at] == 'n' ? '\n' : line->s[at];
        else if (line->s[at] != '\n')
            line->s[to++] = line->s[at];
    }
    line->n = to;
    if (line->s)
        line->s[to] = '\0';
}

static int count_lines(FILE *f)
{
    int n = 0;

    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    rewind(f);
    return n;
}

static int load(FILE *f, const char *path, int most, int (*fn)(void *arg, const char *text),
                void *arg)
{
    struct buf line = { 0 };
    int skip = count_lines(f) - most, rc;

    while ((rc = cb_file_line(f, path, &line)) > 0) {
        if (skip-- > 0)
            continue;
        unescape(&line);
        if (line.n && strlen(line.s) == line.n && (rc = fn(arg, line.s)))
            break;
    }
    cb_buf_free(&line);
    return rc == CB_ENOMEM ? rc : CB_OK;
}

/* Drops the older half of a file that has grown long. */
static void shorten(const char *path)
{
    struct buf all = { 0 };
    struct stat st;
    FILE *f;
    char *from;

    if (stat(path, &st) || st.st_size <= KEEP_BYTES || cb_file_read_path(path, &all))
        return;
    from = memchr(all.s + all.n / 2, '\n', all.n - all.n / 2);
    f = from ? fopen(path, "we") : NULL;
    if (f) {
        fwrite(from + 1, 1, all.n - (size_t)(from + 1 - all.s), f);
        fclose(f);
    }
    cb_buf_free(&all);
}

int cb_history_load(int most, int (*fn)(void *arg, const char *text), void *arg)
{
    char path[PATH_MAX];
    FILE *f;
    int rc;

    if (!history_path(path, sizeof path) || !(f = fopen(path, "re")))
        return CB_OK;
    rc = load(f, path, most, fn, arg);
    fclose(f);
    shorten(path);
    return rc;
}

void cb_history_add(const char *text)
{
    char path[PATH_MAX];
    struct buf line = { 0 };
    int fd;

    for (; *text; text++)
        cb_buf_text(&line, *text == '\n'   ? "\\n"
                           : *text == '\\' ? "\\\\"
                                           : (const char[]){ *text, '\0' });
    if (cb_buf_put(&line, "\n", 1) || !history_path(path, sizeof path)) {
        cb_buf_free(&line);
        return;
    }
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!write(fd, line.s, line.n);
        close(fd);
    }
    cb_buf_free(&line);
}
