/* SPDX-License-Identifier: MIT */
/* plain_text.h - text files as people have them become UTF-8 with line feeds. */
#ifndef PLAIN_TEXT_H
#define PLAIN_TEXT_H

#include <stdio.h>

#include "buf.h"

/* In place: a byte order mark is dropped, UTF-16 with one becomes UTF-8, CRLF becomes LF. What else
 * is not UTF-8: cb_encoding_settle() decides, and says so in note[256]. CB_EFORMAT, with the file's
 * name: a file of a known kind that is no text (PDF, gzip, GGUF, ...), UTF-16 without a mark, and
 * without a note (NULL) all that is not UTF-8. */
int cb_plain_text(const char *name, struct buf *text, char *note);
/* cb_file_line() of the line with this number, from 1 on; the first one is checked as the text is,
 * but UTF-16 is refused. */
int cb_plain_line(FILE *f, const char *name, int number, struct buf *line);

#endif
