/* SPDX-License-Identifier: MIT */
/* log.h - what the program says on standard error. The library says nothing. */
#ifndef LOG_H
#define LOG_H

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

void cb_log_level(enum log_level level);
void cb_log_error(const char *text); /* "ctxbank: TEXT", always */
/* cb_error(), and which option helps with such a status */
void cb_log_failure(int status);
void cb_log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));   /* unless -q */
void cb_log_detail(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* with -v */

#endif
