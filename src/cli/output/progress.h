/* SPDX-License-Identifier: MIT */
/* progress.h - a bar on standard error with the rate and the time left. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdint.h>

#include "base/clock.h"

struct opts;

enum progress_when { PROGRESS_AUTO, PROGRESS_ALWAYS, PROGRESS_NEVER }; /* auto: on a terminal */
enum progress_when cb_progress_when(const struct opts *o);             /* --progress */

struct progress {
    int on, shown; /* shown: characters on the screen */
    const char *label, *unit;
    char extra[64]; /* shown at the end of the bar */
    double start_s, last_s;
};

void cb_progress_start(struct progress *p, enum progress_when when, const char *label,
                       const char *unit); /* such as "tokens" */
/* Draws at most ten times a second, and when done == total. */
void cb_progress_step(struct progress *p, int64_t done, int64_t total);
void cb_progress_end(struct progress *p); /* wipes the bar */

#endif
