/* SPDX-License-Identifier: MIT */
/* row_writer.c - a table on standard output, row by row as they come. */
#include "row_writer.h"

#include <stdio.h>
#include <string.h>

#include "base/json_lenient.h"

static int is(const struct rows *r, const char *format)
{
    return !strcmp(r->format, format);
}

void cb_rows_begin(struct rows *r)
{
    r->n = 0;
    if (is(r, "md"))
        puts(r->md_head);
    else if (is(r, "json"))
        putchar('[');
    for (int i = 0; is(r, "csv") && r->columns[i]; i++)
        printf("%s%s", r->columns[i], r->columns[i + 1] ? "," : "\n");
}

/* A field of CSV after RFC 4180. */
static void csv_text(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"')
            putchar('"');
        putchar(*s);
    }
    putchar('"');
}

static void csv_line(const struct rows *r, const json_t *row)
{
    for (int i = 0; r->columns[i]; i++) {
        const json_t *v = json_object_get(row, r->columns[i]);
        if (i)
            putchar(',');
        if (json_is_string(v))
            csv_text(json_string_value(v));
        else if (json_is_integer(v))
            printf("%" JSON_INTEGER_FORMAT, json_integer_value(v));
        else if (json_is_real(v))
            printf("%.6g", json_real_value(v));
    }
    putchar('\n');
}

int cb_rows_put(struct rows *r, json_t *row)
{
    int rc = CB_OK;

    if (!row)
        return cb_json_fail("a row");
    if (is(r, "md")) {
        r->md_line(row);
    } else if (is(r, "csv")) {
        csv_line(r, row);
    } else {
        if (is(r, "json"))
            fputs(r->n ? ",\n  " : "\n  ", stdout);
        rc = cb_json_dumpf(row, stdout, JSON_REAL_PRECISION(10));
        if (is(r, "jsonl"))
            putchar('\n');
    }
    json_decref(row);
    r->n++;
    return rc ? rc : cb_out_flush();
}

void cb_rows_end(struct rows *r)
{
    if (is(r, "json"))
        puts("\n]");
}
