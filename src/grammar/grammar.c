/* SPDX-License-Identifier: MIT */
/* grammar.c - reads and compiles a grammar. */
#include "grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "readers.h"

typedef int (*reader)(const char *text, size_t len, struct rules *r, int *root);

static int make(const char *text, reader read, struct budget *b, cb_grammar *g)
{
    struct rules r;
    int root = 0, rc;

    cb_rules_init(&r, b);
    rc = cb_budget_steps(b, strlen(text) / 16);
    if (!rc)
        rc = read(text, strlen(text), &r, &root);
    if (!rc)
        rc = cb_rules_check(&r);
    if (!rc)
        rc = cb_program_make(&r, root, &g->program);
    if (!rc && r.notes.n)
        g->notes = cb_buf_take(&r.notes);
    cb_rules_free(&r);
    return rc;
}

int cb_grammar_new(enum grammar_kind kind, const char *text, const struct grammar_limits *limits,
                   cb_grammar **out)
{
    static const reader readers[] = { cb_read_gbnf, cb_read_json_schema, cb_read_regex };
    struct budget b;
    cb_grammar *g;
    int rc;

    *out = NULL;
    if ((unsigned)kind >= sizeof readers / sizeof *readers)
        return cb_fail(CB_EARG, "grammar: there is no kind %d", (int)kind);
    g = cb_calloc(1, sizeof *g);
    if (!g)
        return CB_ENOMEM;
    cb_budget_open(&b, limits);
    rc = make(text, readers[kind], &b, g);
    if (rc)
        free(g);
    else
        *out = g;
    return rc;
}

int cb_grammar_new_gbnf(const char *text, cb_grammar **out)
{
    return cb_grammar_new(GRAMMAR_GBNF, text, NULL, out);
}

int cb_grammar_new_json_schema(const char *text, cb_grammar **out)
{
    return cb_grammar_new(GRAMMAR_JSON_SCHEMA, text, NULL, out);
}

int cb_grammar_new_regex(const char *text, cb_grammar **out)
{
    return cb_grammar_new(GRAMMAR_REGEX, text, NULL, out);
}

const char *cb_grammar_notes(const cb_grammar *g)
{
    return g->notes ? g->notes : "";
}

size_t cb_grammar_bytes(const cb_grammar *g)
{
    return sizeof *g + cb_program_bytes(&g->program) + (g->notes ? strlen(g->notes) + 1 : 0);
}

void cb_grammar_free(cb_grammar *g)
{
    if (!g)
        return;
    cb_program_free(&g->program);
    free(g->notes);
    free(g);
}
