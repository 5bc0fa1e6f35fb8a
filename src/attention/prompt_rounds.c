/* SPDX-License-Identifier: MIT */
/* prompt_rounds.c - a prompt after earlier tokens whose slots are dealt out to ranks. No rank has
 * all rows that a query reads, so the queries go to the rows: in round r every rank attends with
 * the queries of rank r's piece to the slots that it has, and the parts are joined. Rank r keeps
 * the result. Layers whose slots are dealt out read all of them in a prompt, and nobody scores it.
 */
#include "prompt_rounds.h"

#include "base/err.h"
#include "context_split.h"
#include "parts.h"

int cb_prompt_rounds(const struct attention_call *call)
{
    struct attention *a = call->a;

    for (int r = 0; r < cb_context_split_ranks(a); r++) {
        struct attention_call one = { .a = a, .out = cb_context_split_out(a, r, call->out) };
        cb_context_split_piece(a, &call->c, r, &one.c);
        cb_parts_clear(a);
        TRY(cb_parts_whole(a, &one.c, NULL));
        TRY(cb_parts_attend(&one, 1));
    }
    return CB_OK;
}
