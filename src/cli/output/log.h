/* SPDX-License-Identifier: MIT */
/* log.h - messages of the program on standard error. The library prints nothing. */
#ifndef LOG_H
#define LOG_H

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

void cb_log_level(enum log_level level);
int cb_log_open(const char *path); /* all messages are appended to this file too */
/* Prints cb_error(), and the option that helps with this status. */
void cb_log_failure(int status);
void cb_log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));   /* unless -q */
void cb_log_detail(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* with -v */

#endif
