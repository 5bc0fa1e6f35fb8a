/* SPDX-License-Identifier: MIT */
/* json_scan.h - follows one JSON value as a model writes it, byte by byte, and passes it through as
 * it is written. Mended on the way, where only one reading makes sense: control characters and
 * unknown escapes in strings, quotes in a string that letters follow, strings in single quotes,
 * backticks or three quotes, a missing comma before a string, {{...}}, keys without quotes, True,
 * False and None, .5, 5. and +5, a comma before a closing bracket, comments. NaN and infinities,
 * for which JSON has no word, become null. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stddef.h>

#include "base/buf.h"

enum { JSON_SCAN_DEPTH = 128 };
enum json_scan_status { JSON_MORE, JSON_DONE, JSON_BAD };

struct json_scan {
    char open[JSON_SCAN_DEPTH]; /* [depth] '{' or '[' */
    int depth, at;              /* at: what may come next */
    char quote;                 /* of the string that is open */
    int is_key;                 /* the string is a key */
    int empty;                  /* the string has nothing yet */
    int three, n_quote;         /* it stands in three quotes, of which n_quote were read */
    char comment;               /* one is open: a slash was read, or until this byte */
    int star;                   /* its last byte was one */
    char word[10], gap[64];     /* a literal or an escape; a comma and the blanks after it */
    int n_word, n_gap, number;
};

void cb_json_scan_open(struct json_scan *j);
/* The same inside `depth` objects, after a value */
void cb_json_scan_inside(struct json_scan *j, int depth);
/* Takes bytes of s[n] up to the end of the value or to a byte that cannot stand there -> how many.
 * What they mean is added to *out (NULL: dropped). */
size_t cb_json_scan(struct json_scan *j, const char *s, size_t n, struct buf *out,
                    enum json_scan_status *status);
/* Nothing comes any more: adds the brackets that are missing. 0: the value cannot end here. */
int cb_json_scan_close(struct json_scan *j, struct buf *out);

/* s[n], a whole value with blanks around it, mended, onto *out. 0: it is none. */
int cb_json_mend(const char *s, size_t n, struct buf *out);

#endif
