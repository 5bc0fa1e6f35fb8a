/* SPDX-License-Identifier: MIT */
/* json_lenient.h - JSON as programs write it, where strict readers refuse it. */
#ifndef JSON_LENIENT_H
#define JSON_LENIENT_H

#include <jansson.h>
#include <stdio.h>

/* s[n] -> its value; NULL with *why: it is no JSON, or memory ran out. Half a surrogate pair,
 * \u0000 and bytes that are not UTF-8 become U+FFFD; raw control characters in strings count as
 * escaped; integers of any size are read, as reals beyond 64 bits; NaN and Infinity are null; a
 * byte order mark is skipped. */
json_t *cb_json_read(const char *s, size_t n, json_error_t *why);

/* The value of text[n], as JSON has it -> *out, which the caller owns. CB_EFORMAT: it is not JSON;
 * CB_ENOMEM. `what` begins the message. */
int cb_json_parse(const char *text, size_t n, const char *what, json_t **out);
/* The same with flags of jansson. CB_EFORMAT: *why says where; there is no message. */
int cb_json_load(const char *text, size_t n, size_t flags, json_error_t *why, json_t **out);
/* Writes the value to f. CB_ENOMEM, after a part of it; CB_EIO */
int cb_json_dumpf(const json_t *j, FILE *f, size_t flags);

/* json_dumps(), or NULL if memory ran out meanwhile: the text could lack some of it */
char *cb_json_dumps(const json_t *j, size_t flags);
/* json_unpack(). CB_EFORMAT: the value is another one, without a message; CB_ENOMEM, which
 * json_unpack() itself does not tell from that */
int cb_json_unpack(const json_t *j, const char *fmt, ...);
/* json_deep_copy(), or NULL in the same case: the copy could lack members */
json_t *cb_json_deep_copy(const json_t *j);

/* Jansson leaves out some members, and its reader some bytes, when memory runs out, without a word.
 * After cb_json_watch(), which a program calls once, before other threads use JSON, each thread
 * knows whether that has happened since it last called cb_json_forget(). */
void cb_json_watch(void);
void cb_json_forget(void);
int cb_json_failed(void);

#endif
