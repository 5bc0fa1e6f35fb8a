/* SPDX-License-Identifier: MIT */
/* notes.h - what of a request was left out, as the answer's field `ignored` tells it. */
#ifndef NOTES_H
#define NOTES_H

#include "base/json.h"

enum { CB_NOTES_MOST = 100 }; /* more are not told one by one */

/* Adds a note to *list, which may be NULL. CB_ENOMEM */
int cb_note(json_t **list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
