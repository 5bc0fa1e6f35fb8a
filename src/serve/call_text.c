/* SPDX-License-Identifier: MIT */
/* call_text.c - looks at a text in which calls are written, and hands calls out. */
#include "call_text.h"

#include <string.h>

const struct call_form cb_call_forms[CALL_FORMS] = {
    { "<tool_call>", "</tool_call>", 0 }, /* Qwen, Hermes, GLM, SmolLM3 */
    { "<TOOL_CALL>", "</TOOL_CALL>", 0 },
    { "<function_call>", "</function_call>", 0 },
    { "<functioncall>", "</functioncall>", 0 },
    { "<tool_calls>", "</tool_calls>", 0 },
    { "<tools>", "</tools>", 1 },
    { "<tool_use>", "</tool_use>", 0 },
    { "<function_calls>", "</function_calls>", 0 },                 /* OLMo 3 */
    { "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", 0 }, /* DeepSeek V3.2 */
    { "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", 0 },         /* V4 */
    { "<|START_ACTION|>", "<|END_ACTION|>", 0 },                    /* Command */
    { "functools", "", 1 },                                         /* Firefunction */
    { "<TOOLCALL>", "</TOOLCALL>", 0 },                             /* Nemotron */
    { "<minimax:tool_call>", "</minimax:tool_call>", 0 },
    { "<|tool_call|>", "<|/tool_call|>", 0 }, /* Granite, Phi-4 */
    { "<|tool_calls|>", "<|/tool_calls|>", 0 },
    { "<|tool_call>", "<tool_call|>", 0 },                 /* Gemma 4 */
    { "<|tool_call_start|>", "<|tool_call_end|>", 0 },     /* LFM2 */
    { "<start_function_call>", "<end_function_call>", 0 }, /* FunctionGemma */
    { "[TOOL_CALLS]", "</s>", 0 },                         /* Mistral */
    { "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", 0 },
    { "<|python_tag|>", "<|eom_id|>", 0 }, /* Llama 3 */
    { "<function=", "</function>", 0 },    /* Llama 3.1, Qwen3-Coder without its tag */
    { "<function name=", "</function>", 0 },
    { "<tool_call name=", "</tool_call>", 0 },
    { "<invoke name=", "</invoke>", 0 },
    { "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", 0 }, /* DeepSeek */
    { "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", 0 }, /* as small ones misspell it */
    { "<｜tool calls begin｜>", "<｜tool calls end｜>", 0 },
    { "<|tool_call_begin|>", "<|tool_call_end|>", 0 }, /* Kimi without the section */
    { "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", 0 }, /* Kimi */
    { "<|action_start|><|plugin|>", "<|action_end|>", 0 },               /* InternLM */
    { "<|tools_prefix|>", "<|tools_suffix|>", 0 },                       /* Apertus */
    { "```", "```", 1 },
    { "\n{", "", 1 },
};
const struct call_form cb_call_alone = { "", "", 1 };
const struct call_form cb_call_given = { "", "<|call|>", 0 };

/* What may stand after single calls within a form */
static const char *const after_call[] = {
    "<｜tool▁call▁end｜>",
    "<|tool_call_end|>",
    "</function>",
    "</invoke>",
    "</｜DSML｜invoke>",
    "```",
    "[/TOOL_CALLS]",
    "<｜tool_call_end｜>",
    "<｜tool call end｜>",
    "</arguments>",
    "</parameters>",
    "</args>",
    "</input>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|observation|>",
};
enum { N_AFTER_CALL = sizeof after_call / sizeof *after_call };

/* ---- looking at the text ---- */

int cb_call_at(struct call_text *t, const char *mark)
{
    const size_t n = strlen(mark), left = t->n - t->i;

    if (left < n && !t->ended && !memcmp(t->s + t->i, mark, left))
        t->partial = 1;
    return n && left >= n && !memcmp(t->s + t->i, mark, n);
}

int cb_call_skip(struct call_text *t, const char *mark)
{
    if (!cb_call_at(t, mark))
        return 0;
    t->i += strlen(mark);
    return 1;
}

void cb_call_blanks(struct call_text *t)
{
    while (t->i < t->n && t->s[t->i] && strchr(" \t\r\n", t->s[t->i]))
        t->i++;
}

size_t cb_call_find(const struct call_text *t, const char *mark)
{
    const char *p = memmem(t->s + t->i, t->n - t->i, mark, strlen(mark));
    return p ? (size_t)(p - t->s) : t->n;
}

int cb_call_is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_.:-/", c));
}

/* Marks that are words end with the word. */
int cb_call_skip_any(struct call_text *t, const char *const *marks, int n)
{
    for (int i = 0; i < n; i++) {
        const size_t from = t->i;
        if (!cb_call_skip(t, marks[i]))
            continue;
        if (t->s[t->i - 1] < 'a' || t->s[t->i - 1] > 'z' ||
            (t->i < t->n && !cb_call_is_name(t->s[t->i])))
            return 1;
        t->partial |= t->i == t->n && !t->ended;
        t->i = from;
    }
    return 0;
}

/* 1: calls close here, by this form's mark or by another's */
int cb_call_closes(const struct calls *c, struct call_text *t)
{
    if ((*c->form->close && cb_call_at(t, c->form->close)) || cb_call_at(t, "```"))
        return 1;
    for (int i = 0; i < CALL_FORMS; i++)
        if (*cb_call_forms[i].close == '<' && cb_call_at(t, cb_call_forms[i].close))
            return 1;
    for (int i = 0; i < N_AFTER_CALL; i++)
        if (cb_call_at(t, after_call[i]))
            return 1;
    return (c->in_list && cb_call_at(t, "]")) || cb_call_at(t, "[TOOL_CALLS]");
}

int cb_call_form_names(const struct call_form *f)
{
    const size_t n = strlen(f->open);
    return n && f->open[n - 1] == '=';
}

/* ---- tools ---- */

static const json_t *function_of(const struct calls *c, const char *name)
{
    const json_t *t;
    size_t i;

    json_array_foreach(c->tools, i, t)
    {
        const json_t *f = json_object_get(t, "function");
        const char *known = json_string_value(json_object_get(f, "name"));
        if (known && !strcmp(name, known))
            return f;
    }
    return NULL;
}

int cb_call_known(const struct calls *c, const char *name)
{
    return function_of(c, name) != NULL;
}

const json_t *cb_call_properties(const struct calls *c, const char *name)
{
    return json_object_get(json_object_get(function_of(c, name), "parameters"), "properties");
}

/* Some forms write functions.NAME:0. */
void cb_call_fix_name(const struct calls *c, char *name)
{
    const size_t prefix = strlen("functions.");
    char *colon, *dot = strrchr(name, '.');

    if (cb_call_known(c, name))
        return;
    if (dot && cb_call_known(c, dot + 1)) { /* default_api.NAME, tools.NAME */
        memmove(name, dot + 1, strlen(dot + 1) + 1);
        return;
    }
    if (!strncmp(name, "functions.", prefix))
        memmove(name, name + prefix, strlen(name + prefix) + 1);
    if (strlen(name) > 5 && !strcmp(name + strlen(name) - 5, ".call")) /* Llama 3's own tools */
        name[strlen(name) - 5] = 0;
    colon = strrchr(name, ':');
    if (colon && colon[1] && !colon[1 + strspn(colon + 1, "0123456789")])
        *colon = 0;
}

/* ---- handing out ---- */

void cb_call_begin(struct calls *c, const char *name)
{
    c->n++;
    c->sink->begin(c->sink->arg, name);
}

void cb_call_put(struct calls *c, const char *s)
{
    c->sink->args(c->sink->arg, s, strlen(s));
}

void cb_call_end(struct calls *c)
{
    c->sink->end(c->sink->arg);
}

enum calls_status cb_call_stage(struct calls *c, int to)
{
    c->stage = to;
    return CALLS_END; /* of the stage */
}

int cb_call_skip_after(struct call_text *t)
{
    return cb_call_skip_any(t, after_call, N_AFTER_CALL);
}
