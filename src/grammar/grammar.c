/* SPDX-License-Identifier: MIT */
/* grammar.c - reads and compiles a grammar. */
#include "grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "readers.h"

typedef int (*reader)(const char *text, size_t len, struct rules *r, int *root);

static int make(const char *text, reader read, cb_grammar **out)
{
    cb_grammar *g;
    struct rules r;
    int root = 0, rc;

    *out = NULL;
    g = cb_calloc(1, sizeof *g);
    if (!g)
        return CB_ENOMEM;
    cb_rules_init(&r);
    rc = read(text, strlen(text), &r, &root);
    if (!rc)
        rc = cb_rules_check(&r);
    if (!rc)
        rc = cb_program_make(&r, root, &g->program);
    cb_rules_free(&r);
    if (rc)
        free(g);
    else
        *out = g;
    return rc;
}

int cb_grammar_new_gbnf(const char *text, cb_grammar **out)
{
    return make(text, cb_read_gbnf, out);
}

int cb_grammar_new_json_schema(const char *text, cb_grammar **out)
{
    return make(text, cb_read_json_schema, out);
}

int cb_grammar_new_regex(const char *text, cb_grammar **out)
{
    return make(text, cb_read_regex, out);
}

void cb_grammar_free(cb_grammar *g)
{
    if (!g)
        return;
    cb_program_free(&g->program);
    free(g);
}
