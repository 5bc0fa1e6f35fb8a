/* SPDX-License-Identifier: MIT */
/* opts_files.h - no file that a command reads is also written. */
#ifndef OPTS_FILES_H
#define OPTS_FILES_H

#include "opts.h"

/* The option that names the file at `path` for reading; ARG_COUNT: an operand; -1: none */
int cb_opts_reading(const struct opts *o, const char *path);
/* CB_USAGE: an option would write over what another argument names for reading. */
int cb_opts_check_files(const struct opts *o);

#endif
