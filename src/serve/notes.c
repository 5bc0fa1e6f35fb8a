/* SPDX-License-Identifier: MIT */
/* notes.c - what of a request was left out. */
#include "notes.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

int cb_note(json_t **list, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    json_t *note;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (json_array_size(*list) >= CB_NOTES_MOST)
        return CB_OK;
    if (!*list)
        *list = json_array();
    note = cb_json_str(text);
    return json_array_append_new(*list, note) ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}
