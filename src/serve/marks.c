/* SPDX-License-Identifier: MIT */
/* marks.c - special tokens that open and close thoughts and calls. */
#include "marks.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "calls.h"

static const char *const of_thoughts[] = {
    "<think>",          "</think>",    "[THINK]",    "[/THINK]",         "<|START_THINKING|>",
    "<|END_THINKING|>", "<|channel|>", "<|start|>",  "<|message|>",      "<|constrain|>",
    "<|end|>",          "<|channel>",  "<channel|>", "<|inner_prefix|>", "<|inner_suffix|>",
};
static const char *const of_calls[] = {
    "[ARGS]",
    "[CALL_ID]",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
    "<|tool_calls_section_end|>",
    "<escape>",
    "<|\"|>",
    "<|/tool_call|>",
    "<tool_call|>",
    "<end_function_call>",
    "<|action_start|>",
    "<|plugin|>",
    "<|action_end|>",
    "<|END_ACTION|>",
    "<|tools_suffix|>",
    "｜DSML｜",
};
enum {
    N_THOUGHTS = sizeof of_thoughts / sizeof *of_thoughts,
    N_CALLS = sizeof of_calls / sizeof *of_calls
};

/* The special token of this name -> *out; else nothing is added */
static int add(const cb_model *model, const char *name, struct marks *out)
{
    int32_t *ids;
    char byte;
    int n;

    TRY(cb_tokenize(model, name, strlen(name), CB_TOK_SPECIAL, &ids, &n));
    if (n == 1 && !cb_token_bytes(model, ids[0], 0, &byte, 1))
        out->ids[out->n++] = ids[0];
    free(ids);
    return CB_OK;
}

static int add_all(const cb_model *model, struct marks *out)
{
    for (int i = 0; i < N_THOUGHTS; i++)
        TRY(add(model, of_thoughts[i], out));
    out->n_thought = out->n;
    for (int i = 0; i < CALL_FORMS; i++)
        TRY(add(model, cb_call_forms[i].open, out));
    for (int i = 0; i < N_CALLS; i++)
        TRY(add(model, of_calls[i], out));
    return CB_OK;
}

int cb_marks_find(const cb_model *model, struct marks *out)
{
    int rc;

    *out = (struct marks){ .ids = cb_calloc(N_THOUGHTS + N_CALLS + CALL_FORMS, sizeof *out->ids) };
    rc = out->ids ? add_all(model, out) : CB_ENOMEM;
    if (rc) {
        free(out->ids);
        *out = (struct marks){ 0 };
    }
    return rc;
}
