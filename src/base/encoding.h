/* SPDX-License-Identifier: MIT */
/* encoding.h - texts that are not UTF-8. */
#ifndef ENCODING_H
#define ENCODING_H

#include "buf.h"

/* In place: a text whose bytes beyond ASCII are single ones, as in Latin-1, is taken for
 * Windows-1252 and becomes UTF-8. A text in UTF-8 with a few other bytes keeps them. note[256]
 * says what was found and done, or is "". CB_EFORMAT: most bytes are beyond ASCII, as in other
 * encodings, or there is no note to say so (NULL). */
int cb_encoding_settle(const char *name, struct buf *text, char *note);

#endif
