/* SPDX-License-Identifier: MIT */
/* lexer.h - a template's source as tokens. */
#ifndef LEXER_H
#define LEXER_H

#include "jvalue.h"

enum token_kind {
    T_END,
    T_DATA,      /* v */
    T_PRINT,     /* {{ */
    T_PRINT_END, /* }} */
    T_BLOCK,     /* {% */
    T_BLOCK_END, /* %} */
    T_NAME,      /* v.str */
    T_CONST,     /* v: text or number */
    T_OP         /* op: a character; 'p' **, 'd' //, '=' ==, 'a' =, '!' !=, 'l' <=, 'g' >= */
};

struct token {
    enum token_kind kind;
    int op, line;
    struct jv v;
};

/* Blank lines follow the settings of chat templates: trim_blocks and lstrip_blocks. *out[] ends
 * with T_END. */
int cb_jlex(struct jrun *r, const char *src, size_t n, struct token **out);

#endif
