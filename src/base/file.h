/* SPDX-License-Identifier: MIT */
/* file.h - text files read whole or line by line. What has no end, such as a device, ends in an
 * error instead of filling the memory. */
#ifndef FILE_H
#define FILE_H

#include <stdio.h>
#include <string.h>

#include "buf.h"

/* The last part of a path */
static inline const char *cb_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

enum { CB_FILE_MOST = 1 << 29 }; /* bytes of a text, and of a line */

/* Appends the rest of an open file to out; name: for errors. */
int cb_file_read(FILE *f, const char *name, struct buf *out);
int cb_file_read_path(const char *path, struct buf *out);
/* The same of a regular file of at most `most` bytes. Anything else, such as a FIFO or a device, is
 * refused without waiting for it. */
int cb_file_read_plain(const char *path, size_t most, struct buf *out);
/* 1: *line is the next line, with its line end if it has one; 0: no more lines; negative: failed.
 */
int cb_file_line(FILE *f, const char *name, struct buf *line);
/* The first line of a file of the kernel -> buf[cap]; 0: it cannot be read */
int cb_file_first_line(const char *path, char *buf, int cap);

#endif
