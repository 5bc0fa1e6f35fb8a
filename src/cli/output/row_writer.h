/* SPDX-License-Identifier: MIT */
/* row_writer.h - a table on standard output, row by row as they come: Markdown, CSV, JSON, JSON
 * lines. */
#ifndef ROW_WRITER_H
#define ROW_WRITER_H

#include "cli/cmd.h"

struct rows {
    const char *format;         /* "md", "csv", "json", "jsonl" */
    const char *const *columns; /* keys of a row, ends with NULL; the header of CSV */
    const char *md_head;        /* of Markdown, two lines; and how a row looks there */
    void (*md_line)(const json_t *row);
    int n; /* rows so far */
};

void cb_rows_begin(struct rows *r);
int cb_rows_put(struct rows *r,
                json_t *row); /* drops the reference; CB_EIO when it cannot be written */
void cb_rows_end(struct rows *r);

#endif
