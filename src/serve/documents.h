/* SPDX-License-Identifier: MIT */
/* documents.h - documents that clients have put up front: messages with which conversations begin,
 * by id. Used by many threads. */
#ifndef DOCUMENTS_H
#define DOCUMENTS_H

#include "base/json.h"

enum { CB_DOCUMENTS_MOST = 256, CB_DOCUMENT_ID = 64 };

struct documents;

int cb_documents_new(size_t most_bytes, struct documents **out); /* of all that are kept */
void cb_documents_free(struct documents *b);
/* messages and name: copied; name may be NULL. The new id -> id[CB_DOCUMENT_ID]. CB_EARG: there are
 * too many, or they would take too much memory. */
int cb_documents_add(struct documents *b, const json_t *messages, const char *name, int n_tokens,
                     char *id);
json_t *cb_documents_messages(struct documents *b,
                              const char *id);                 /* a copy; NULL: there is none */
size_t cb_documents_cost(struct documents *b, const char *id); /* bytes to read it; 0: none */
json_t *cb_documents_list(struct documents *b); /* {id, object, name, created, tokens} */
int cb_documents_remove(struct documents *b, const char *id); /* 1: it was there */

#endif
