/* SPDX-License-Identifier: MIT */
/* prefix_store.h - documents that clients have put up front: messages with which conversations
 * begin, by id. Used by many threads. */
#ifndef PREFIX_STORE_H
#define PREFIX_STORE_H

#include "base/json.h"

enum { CB_PREFIX_STORE_MOST = 256, CB_DOCUMENT_ID = 64 };

struct prefix_store;

int cb_prefix_store_new(size_t most_bytes, struct prefix_store **out); /* of all that are kept */
void cb_prefix_store_free(struct prefix_store *b);
/* messages and name: copied; name may be NULL. The new id -> id[CB_DOCUMENT_ID]. CB_EARG: there are
 * too many, or they would take too much memory. */
int cb_prefix_store_add(struct prefix_store *b, const json_t *messages, const char *name,
                        int n_tokens, char *id);
json_t *cb_prefix_store_messages(struct prefix_store *b,
                                 const char *id); /* a copy; NULL: there is none */
size_t cb_prefix_store_cost(struct prefix_store *b, const char *id); /* bytes to read it; 0: none */
json_t *cb_prefix_store_list(struct prefix_store *b); /* {id, object, name, created, tokens} */
int cb_prefix_store_remove(struct prefix_store *b, const char *id); /* 1: it was there */

#endif
