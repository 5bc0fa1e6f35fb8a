/* SPDX-License-Identifier: MIT */
/* prompt_rounds.h - a prompt after earlier tokens whose slots are dealt out to ranks. */
#ifndef PROMPT_ROUNDS_H
#define PROMPT_ROUNDS_H

#include "attention.h"

/* Attends with the queries of call's chunk, which is stored -> call's out, as cb_parts_attend()
 * does; every rank calls it for its own piece of the same step. */
int cb_prompt_rounds(const struct attention_call *call);

#endif
