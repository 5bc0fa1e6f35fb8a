/* SPDX-License-Identifier: MIT */
/* utf8.h - whole UTF-8 characters, in a text and in a stream of pieces. */
#ifndef UTF8_H
#define UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the complete UTF-8 character at s (n > 0 bytes left), 0 if there is none. */
int cb_utf8_len(const char *s, size_t n);
int cb_utf8_put(uint32_t c, char *out); /* -> out[4]; returns the number of bytes */

/* Makes s[n] fit for one line of a terminal, in place: control characters (C0, DEL, C1), except
 * those in `keep`, and bytes that are not UTF-8 become '?'. Returns the new length. */
size_t cb_utf8_plain(char *s, size_t n, const char *keep);

/* Holds back an unfinished UTF-8 character until its last byte comes. */
struct utf8_hold {
    char b[4];
    int n;
};
/* Appends in[n]; writes whole characters to out (cap >= 3 * (n + 1)); returns bytes written. Bytes
 * that cannot become a character are written as U+FFFD (3 bytes), one for each longest prefix of a
 * valid character. */
int cb_utf8_push(struct utf8_hold *h, const char *in, int n, char *out);
int cb_utf8_flush(struct utf8_hold *h, char *out); /* an unfinished character as U+FFFD; out[3] */

#endif
