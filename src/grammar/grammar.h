/* SPDX-License-Identifier: MIT */
/* grammar.h - a grammar as the public interface hands it out. */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include "ctxbank.h"
#include "grammar_budget.h"
#include "program.h"

struct cb_grammar {
    struct program program;
    char *notes; /* NULL: none */
};

enum grammar_kind { GRAMMAR_GBNF, GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX };

/* The functions of ctxbank.h within limits (NULL: the usual ones). Beyond one of them:
 * CB_EUNSUPPORTED, and cb_error() names it. */
int cb_grammar_new(enum grammar_kind kind, const char *text, const struct grammar_limits *limits,
                   cb_grammar **out);
/* Memory that it takes until it is freed */
size_t cb_grammar_bytes(const cb_grammar *grammar);
/* Lines on what the grammar does not say exactly, such as "#/properties/a: 'uniqueItems' is not
 * enforced"; "" if there is nothing. Valid as long as the grammar */
const char *cb_grammar_notes(const cb_grammar *grammar);

#endif
