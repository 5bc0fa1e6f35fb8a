/* SPDX-License-Identifier: MIT */
/* progress.c - a bar on standard error with the rate and the time left. */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/options/opts.h"

void cb_progress_start(struct progress *p, enum progress_when when, const char *label,
                       const char *unit)
{
    const char *term = getenv("TERM");
    const int smart = isatty(STDERR_FILENO) && term && strcmp(term, "dumb");

    *p = (struct progress){ .label = label, .unit = unit, .start_s = cb_now_s() };
    p->on = when == PROGRESS_ALWAYS || (when == PROGRESS_AUTO && smart);
}

static int columns(void)
{
    struct winsize w;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || !w.ws_col)
        return 80;
    return w.ws_col > 120 ? 120 : w.ws_col;
}

/* Replaces the line that is shown. Blanks cover the rest of a longer one: no terminal needs to
 * understand more than a carriage return. */
static void show(struct progress *p, const char *line)
{
    const int n = (int)strlen(line);

    fprintf(stderr, "\r%s%*s", line, p->shown > n ? p->shown - n : 0, "");
    fflush(stderr);
    p->shown = n;
}

void cb_progress_step(struct progress *p, int64_t done, int64_t total)
{
    const double now = cb_now_s(), spent = now - p->start_s;
    const double rate = spent > 0 ? (double)done / spent : 0;
    char head[48], tail[192], bar[128], line[sizeof head + sizeof tail + sizeof bar];
    int width, full;
    long left;

    if (!p->on || total <= 0 || (done < total && now - p->last_s < 0.1))
        return;
    p->last_s = now;
    left = rate > 0 ? (long)((double)(total - done) / rate + 0.5) : 0;
    snprintf(head, sizeof head, "%.16s %3d%% ", p->label, (int)(100 * done / total));
    snprintf(tail, sizeof tail, " %lld/%lld %s, %.*f/s, %ld:%02ld left%s%.63s", (long long)done,
             (long long)total, p->unit, rate < 10 ? 2 : 0, rate, left / 60, left % 60,
             *p->extra ? ", " : "", p->extra);
    width = columns() - 1 - (int)strlen(head) - (int)strlen(tail) - 2;
    width = width < 4 ? 0 : width > (int)sizeof bar - 1 ? (int)sizeof bar - 1 : width;
    full = (int)((double)width * (double)done / (double)total);
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(width - full));
    bar[width] = 0;
    snprintf(line, sizeof line, width ? "%s[%s]%s" : "%s%s%s", head, bar, tail);
    line[columns() - 1] = '\0'; /* a line that wraps could not be replaced */
    line[cb_utf8_plain(line, strlen(line), "")] = '\0';
    show(p, line);
}

void cb_progress_end(struct progress *p)
{
    if (!p->shown)
        return;
    show(p, "");
    fputc('\r', stderr);
}

enum progress_when cb_progress_when(const struct opts *o)
{
    if (cb_opt_flag(o, ARG_QUIET) || cb_opt_is(o, ARG_PROGRESS, "never"))
        return PROGRESS_NEVER;
    return cb_opt_is(o, ARG_PROGRESS, "always") ? PROGRESS_ALWAYS : PROGRESS_AUTO;
}
