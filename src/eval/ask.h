/* SPDX-License-Identifier: MIT */
/* ask.h - turns an item into token ids, and a session's logits into an answer. */
#ifndef ASK_H
#define ASK_H

#include <stdint.h>

#include "base/buf.h"
#include "ctxbank.h"
#include "item.h"

struct prompt {
    int32_t *ids; /* [n]; caller frees */
    int n;
    int split;     /* ids[0..split-1] are the context, the rest is the question */
    int truncated; /* tokens that were taken out of the middle */
};

/* form: the chat form, NULL = plain text. room: most tokens that the prompt may have. If `truncate`
 * is set, a longer prompt loses its middle (LongBench's rule: half of the room from the front, half
 * from the end); else CB_EFULL. */
int cb_ask_prompt(const cb_model *m, const char *form, const struct item *it, int room,
                  int truncate, struct prompt *out);

/* Greedy decoding after a prefill. It ends at an end token, at the item's max_new, at the end of
 * the first line if the item says so, or when no further text can change the score. stop: non-zero
 * ends it with CB_ECANCEL. */
int cb_ask_answer(const cb_model *m, cb_session *s, const struct item *it, int (*stop)(void *arg),
                  void *arg, struct buf *pred);

double cb_ask_score(const struct item *it, const char *pred); /* 0..1; negative: out of memory */

#endif
