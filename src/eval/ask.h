/* SPDX-License-Identifier: MIT */
/* ask.h - an item becomes token ids, and a session's logits an answer. */
#ifndef ASK_H
#define ASK_H

#include <stdint.h>

#include "base/buf.h"
#include "ctxbank.h"
#include "item.h"

struct prompt {
    int32_t *ids; /* [n]; caller frees */
    int n;
    int split;     /* ids[0..split-1] are the context, what follows the question */
    int truncated; /* tokens that were taken out of the middle */
};

/* form: the chat form, NULL = plain text. room: most tokens that the prompt may have. Longer
 * ones lose their middle where `truncate` says so (LongBench's rule: half of the room from the
 * front, half from the end); else CB_EFULL. */
int cb_ask_prompt(const cb_model *m, const char *form, const struct item *it, int room,
                  int truncate, struct prompt *out);

/* Greedy decoding after a prefill: until an end token, the item's max_new, its first line's end, or
 * until nothing that may follow can change the score. stop: non-zero ends it with CB_ECANCEL. */
int cb_ask_answer(const cb_model *m, cb_session *s, const struct item *it, int (*stop)(void *arg),
                  void *arg, struct buf *pred);

double cb_ask_score(const struct item *it, const char *pred); /* 0..1; negative: out of memory */

#endif
