/* SPDX-License-Identifier: MIT */
/* opts_man.h - OPTIONS sections of manual pages. */
#ifndef OPTS_MAN_H
#define OPTS_MAN_H

#include <stdio.h>

#include "cli/options/opts.h"

/* The options that a command alone takes, and the names of those that other pages describe: the
 * page of its group ("eval"), or ctxbank-options(7). */
void cb_opts_man(const struct cmd *cmd, FILE *f);
/* The options that several commands take: all of them of one group, or with group NULL of more than
 * one. */
void cb_opts_man_shared(const char *group, FILE *f);

/* Text of several lines of a manual page; none begins with a control character. */
void cb_man_text(const char *text, FILE *f);

#endif
