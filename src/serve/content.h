/* SPDX-License-Identifier: MIT */
/* content.h - the content of a message as text: a text, or parts in the forms of all interfaces. */
#ifndef CONTENT_H
#define CONTENT_H

#include "base/buf.h"
#include "base/json.h"

struct content {
    struct buf text, thought;
};

/* Adds content to *out, with a line end between parts. What is no text (images, files, parts of an
 * unknown type) becomes a word in brackets, and a note in *ignored. where: for messages. CB_EARG:
 * it is neither a text nor parts. */
int cb_content_add(const json_t *content, const char *where, json_t **ignored, struct content *out);
/* One part; the caller frees *out, also after a failure. */
int cb_content_add_part(const json_t *part, const char *where, json_t **ignored,
                        struct content *out);
void cb_content_free(struct content *c);
/* The text, or the thought, as JSON; NULL, with the failure set, if memory ran out */
json_t *cb_content_json(const struct buf *b);

#endif
