/* SPDX-License-Identifier: MIT */
/* progress.c - a bar on standard error with the rate and the time left. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void cb_progress_start(struct progress *p, enum progress_when when, const char *label,
                       const char *unit)
{
    *p = (struct progress){ .label = label, .unit = unit, .start_s = cb_now_s() };
    p->on = when == PROGRESS_ALWAYS || (when == PROGRESS_AUTO && isatty(STDERR_FILENO));
}

static int columns(void)
{
    struct winsize w;
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col >= 40)
        return w.ws_col > 120 ? 120 : w.ws_col;
    return 80;
}

void cb_progress_step(struct progress *p, int64_t done, int64_t total)
{
    const double now = cb_now_s(), spent = now - p->start_s;
    const double rate = spent > 0 ? (double)done / spent : 0;
    char head[48], tail[192], bar[128];
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
    fprintf(stderr, width ? "\r%s[%s]%s\033[K" : "\r%s%s%s\033[K", head, bar, tail);
    fflush(stderr);
    p->shown = 1;
}

void cb_progress_end(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = 0;
}
