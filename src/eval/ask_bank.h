/* SPDX-License-Identifier: MIT */
/* ask_bank.h - items that begin with a saved text continue from its bank. */
#ifndef ASK_BANK_H
#define ASK_BANK_H

#include "answer.h"
#include "ctxbank.h"

/* Was the bank made with the answerer's policy, types and prefill? */
int cb_ask_bank_is_of(const cb_session *bank, const struct answerer *by);
/* How many of the bank's tokens a session can begin with that is to be fed ids[n] as a prompt, and
 * be as that prompt leaves it, to the bit; 0: none */
int cb_ask_bank_common(const cb_session *bank, const int32_t *ids, int n);

#endif
