/* SPDX-License-Identifier: MIT */
/* banks.h - documents that clients have put up front: messages with which conversations begin, by
 * id. Used by many threads. */
#ifndef BANKS_H
#define BANKS_H

#include "base/json.h"

enum { CB_BANKS_MOST = 256, CB_BANK_ID = 64 };

struct banks;

int cb_banks_new(struct banks **out);
void cb_banks_free(struct banks *b);
/* messages: copied. The new id -> id[CB_BANK_ID]. CB_EARG: there are too many. */
int cb_banks_add(struct banks *b, const json_t *messages, int n_tokens, char *id);
json_t *cb_banks_messages(struct banks *b, const char *id); /* a copy; NULL: there is none */
json_t *cb_banks_list(struct banks *b);                     /* {id, object, created, tokens} */
int cb_banks_remove(struct banks *b, const char *id);       /* 1: it was there */

#endif
