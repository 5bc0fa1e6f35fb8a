/* SPDX-License-Identifier: MIT */
/* parser.c - tokens to the nodes of statements. */
#include <string.h>

#include "parse_expr.h"

/* Statements up to one of the tags ends[], whose name is left as the next token, or, without
 * ends, up to the end */
static int parse_body(struct parser *p, const char *const *ends, struct node **out);

static int end_block(struct parser *p)
{
    if (p->t->kind != T_BLOCK_END)
        return cb_jparse_fail(p, "%}");
    p->t++;
    return CB_OK;
}

/* Statements up to {% name %}, which is read */
static int body_until(struct parser *p, const char *name, struct node **out)
{
    const char *const ends[] = { name, NULL };

    TRY(end_block(p));
    TRY(parse_body(p, ends, out));
    p->t++;
    return end_block(p);
}

static int parse_if(struct parser *p, struct node *n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    struct node *at = n;

    n->kind = N_IF;
    for (;;) {
        TRY(cb_jparse_tuple(p, 0, &at->a));
        TRY(end_block(p));
        TRY(parse_body(p, ends, &at->kids));
        if (!cb_jskip_name(p, "elif"))
            break;
        TRY(cb_jnode(p, N_IF, &at->other));
        at = at->other;
    }
    if (cb_jskip_name(p, "endif"))
        return end_block(p);
    p->t++;
    at->op = 1;
    return body_until(p, "endif", &at->other);
}

static int parse_for(struct parser *p, struct node *n)
{
    static const char *const ends[] = { "else", "endfor", NULL };

    n->kind = N_FOR;
    TRY(cb_jparse_target(p, 0, &n->a));
    if (!cb_jskip_name(p, "in"))
        return cb_jparse_fail(p, "in");
    TRY(cb_jparse_tuple(p, 0, &n->b));
    if (cb_jskip_name(p, "if"))
        TRY(cb_jparse_expr(p, &n->c));
    n->op = cb_jskip_name(p, "recursive");
    TRY(end_block(p));
    TRY(parse_body(p, ends, &n->kids));
    if (cb_jskip_name(p, "endfor"))
        return end_block(p);
    p->t++;
    return body_until(p, "endfor", &n->other);
}

static int parse_set(struct parser *p, struct node *n)
{
    struct node *in;

    TRY(cb_jparse_target(p, 1, &n->a));
    if (cb_jskip_op(p, 'a')) {
        n->kind = N_SET;
        TRY(cb_jparse_tuple(p, 1, &n->b));
        return end_block(p);
    }
    n->kind = N_SET_TO;
    TRY(cb_jnode(p, N_INPUT, &in));
    TRY(cb_jparse_filters(p, in, 0, &n->b));
    return body_until(p, "endset", &n->kids);
}

/* Parameters after '(' */
static int parse_params(struct parser *p, struct node **out)
{
    struct node_list l = { 0 };

    while (!cb_jis_op(p, ')')) {
        struct node *n;
        if (l.first)
            TRY(cb_jtake_op(p, ','));
        if (cb_jis_op(p, ')'))
            break;
        TRY(cb_jnode(p, N_KWARG, &n));
        TRY(cb_jtake_name(p, &n->v));
        if (cb_jskip_op(p, 'a'))
            TRY(cb_jparse_expr(p, &n->a));
        else if (l.last && l.last->a)
            return cb_jparse_fail(p, "a default value");
        cb_jnode_add(&l, n);
    }
    p->t++;
    *out = l.first;
    return CB_OK;
}

static int parse_macro(struct parser *p, struct node *n)
{
    n->kind = N_MACRO;
    TRY(cb_jtake_name(p, &n->v));
    TRY(cb_jtake_op(p, '('));
    TRY(parse_params(p, &n->params));
    return body_until(p, "endmacro", &n->kids);
}

static int parse_call_block(struct parser *p, struct node *n)
{
    n->kind = N_CALL_BLOCK;
    if (cb_jskip_op(p, '('))
        TRY(parse_params(p, &n->params));
    TRY(cb_jparse_expr(p, &n->a));
    if (n->a->kind != N_CALL)
        return cb_jparse_fail(p, "a call in front,");
    return body_until(p, "endcall", &n->kids);
}

static int parse_filter_block(struct parser *p, struct node *n)
{
    struct node *in;

    n->kind = N_FILTERED;
    TRY(cb_jnode(p, N_INPUT, &in));
    TRY(cb_jparse_filters(p, in, 1, &n->b));
    return body_until(p, "endfilter", &n->kids);
}

static int parse_with(struct parser *p, struct node *n)
{
    struct node_list l = { 0 };

    n->kind = N_WITH;
    while (p->t->kind != T_BLOCK_END) {
        struct node *v;
        if (l.first)
            TRY(cb_jtake_op(p, ','));
        TRY(cb_jnode(p, N_KWARG, &v));
        TRY(cb_jtake_name(p, &v->v));
        TRY(cb_jtake_op(p, 'a'));
        TRY(cb_jparse_expr(p, &v->a));
        cb_jnode_add(&l, v);
    }
    n->params = l.first;
    return body_until(p, "endwith", &n->kids);
}

static int parse_scope(struct parser *p, struct node *n)
{
    n->kind = N_SCOPE;
    return body_until(p, "endgeneration", &n->kids);
}

static int parse_break(struct parser *p, struct node *n)
{
    n->kind = N_BREAK;
    return end_block(p);
}

static int parse_continue(struct parser *p, struct node *n)
{
    n->kind = N_CONTINUE;
    return end_block(p);
}

static const struct {
    const char *name;
    int (*parse)(struct parser *p, struct node *n);
} tags[] = {
    { "if", parse_if },           { "for", parse_for },
    { "set", parse_set },         { "macro", parse_macro },
    { "call", parse_call_block }, { "filter", parse_filter_block },
    { "with", parse_with },       { "generation", parse_scope },
    { "break", parse_break },     { "continue", parse_continue },
};

static int parse_tag(struct parser *p, struct node **out)
{
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        int rc;
        if (!cb_jis_name(p, tags[i].name))
            continue;
        TRY(cb_jnode(p, N_SCOPE, out));
        p->t++;
        TRY(cb_jdeeper(p->r));
        rc = tags[i].parse(p, *out);
        p->r->depth--;
        return rc;
    }
    return cb_jparse_fail(p, "a known tag");
}

static int parse_one(struct parser *p, struct node **out)
{
    if (p->t->kind == T_DATA) {
        TRY(cb_jnode(p, N_TEXT, out));
        (*out)->v = p->t++->v;
        return CB_OK;
    }
    if (p->t->kind == T_BLOCK) {
        p->t++;
        return parse_tag(p, out);
    }
    TRY(cb_jnode(p, N_PRINT, out));
    p->t++;
    TRY(cb_jparse_tuple(p, 1, &(*out)->a));
    if (p->t->kind != T_PRINT_END)
        return cb_jparse_fail(p, "}}");
    p->t++;
    return CB_OK;
}

static int parse_body(struct parser *p, const char *const *ends, struct node **out)
{
    struct node_list l = { 0 };
    struct node *n;

    for (; p->t->kind != T_END; cb_jnode_add(&l, n)) {
        for (int i = 0; ends && ends[i] && p->t->kind == T_BLOCK; i++) {
            struct parser next = { p->r, p->t + 1 };
            if (!cb_jis_name(&next, ends[i]))
                continue;
            p->t++;
            *out = l.first;
            return CB_OK;
        }
        TRY(parse_one(p, &n));
    }
    *out = l.first;
    if (!ends)
        return CB_OK;
    while (ends[1]) /* the last one closes the block */
        ends++;
    return cb_jparse_fail(p, *ends);
}

int cb_jparse(struct jrun *r, const char *src, size_t n, struct node **out)
{
    struct parser p = { .r = r };
    struct token *t;

    TRY(cb_jlex(r, src, n, &t));
    p.t = t;
    TRY(parse_body(&p, NULL, out));
    r->line = 0;
    return CB_OK;
}
