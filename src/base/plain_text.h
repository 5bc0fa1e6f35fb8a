/* SPDX-License-Identifier: MIT */
/* plain_text.h - text files as people have them become UTF-8 with line feeds. */
#ifndef PLAIN_TEXT_H
#define PLAIN_TEXT_H

#include "buf.h"

/* In place: a byte order mark is dropped, UTF-16 with one becomes UTF-8, CRLF becomes LF. What else
 * is not UTF-8: cb_encoding_settle() decides, and says so in note[256]. CB_EFORMAT, with the file's
 * name: a file of a known kind that is no text (PDF, gzip, GGUF, ...), UTF-16 without a mark, and
 * without a note (NULL) all that is not UTF-8. */
int cb_plain_text(const char *name, struct buf *text, char *note);
/* The same of a file's first line, where the file is read line by line: UTF-16 is refused. */
int cb_plain_first_line(const char *name, struct buf *line);

#endif
