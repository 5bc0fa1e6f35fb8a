/* SPDX-License-Identifier: MIT */
/* model_log.c - lines for the log that the caller of the library gave. */
#include <stdarg.h>
#include <stdio.h>

#include "model.h"

void cb_model_log(const struct cb_model *m, enum cb_log_level level, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    if (!m->log)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    m->log(m->log_arg, level, line);
}
