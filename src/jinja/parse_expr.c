/* SPDX-License-Identifier: MIT */
/* parse_expr.c - tokens to the nodes of expressions, with Jinja's precedence. */
#include "parse_expr.h"

#include <string.h>

int cb_jnode(struct parser *p, enum node_kind kind, struct node **out)
{
    struct node *n = cb_jalloc(p->r, 1, sizeof *n);

    if (!n)
        return CB_ENOMEM;
    n->kind = kind;
    n->line = p->t->line;
    *out = n;
    return cb_jstep(p->r, 0);
}

void cb_jnode_add(struct node_list *l, struct node *n)
{
    if (l->last)
        l->last->next = n;
    else
        l->first = n;
    l->last = n;
}

int cb_jparse_fail(struct parser *p, const char *expected)
{
    const struct token *t = p->t;
    static const char *const what[] = {
        [T_END] = "the end",  [T_DATA] = "text", [T_PRINT] = "{{",
        [T_PRINT_END] = "}}", [T_BLOCK] = "{%",  [T_BLOCK_END] = "%}",
    };

    p->r->line = t->line;
    if (t->kind == T_NAME)
        return cb_jfail(p->r, "%s expected, not \"%.*s\"", expected,
                        t->v.str.n < 60 ? (int)t->v.str.n : 60, t->v.str.s);
    if (t->kind == T_CONST)
        return cb_jfail(p->r, "%s expected, not a constant", expected);
    if (t->kind == T_OP)
        return cb_jfail(p->r, "%s expected, not '%c'", expected, t->op == 'a' ? '=' : t->op);
    return cb_jfail(p->r, "%s expected, not %s", expected, what[t->kind]);
}

int cb_jis_op(const struct parser *p, int op)
{
    return p->t->kind == T_OP && p->t->op == op;
}

int cb_jis_name(const struct parser *p, const char *name)
{
    return p->t->kind == T_NAME && cb_jis(&p->t->v, name);
}

int cb_jskip_op(struct parser *p, int op)
{
    const int yes = cb_jis_op(p, op);

    p->t += yes;
    return yes;
}

int cb_jskip_name(struct parser *p, const char *name)
{
    const int yes = cb_jis_name(p, name);

    p->t += yes;
    return yes;
}

int cb_jtake_op(struct parser *p, int op)
{
    const char text[4] = { '\'', op == 'a' ? '=' : (char)op, '\'', 0 };

    return cb_jskip_op(p, op) ? CB_OK : cb_jparse_fail(p, text);
}

int cb_jtake_name(struct parser *p, struct jv *out)
{
    if (p->t->kind != T_NAME)
        return cb_jparse_fail(p, "a name");
    *out = p->t++->v;
    return CB_OK;
}

/* ---- primaries ---- */

static int parse_list(struct parser *p, int close, struct node_list *l)
{
    while (!cb_jis_op(p, close)) {
        struct node *n;
        if (l->first)
            TRY(cb_jtake_op(p, ','));
        if (cb_jis_op(p, close))
            break;
        TRY(cb_jparse_expr(p, &n));
        cb_jnode_add(l, n);
    }
    p->t++;
    return CB_OK;
}

static int parse_dict(struct parser *p, struct node_list *l)
{
    while (!cb_jis_op(p, '}')) {
        struct node *key, *value;
        if (l->first)
            TRY(cb_jtake_op(p, ','));
        if (cb_jis_op(p, '}'))
            break;
        TRY(cb_jparse_expr(p, &key));
        TRY(cb_jtake_op(p, ':'));
        TRY(cb_jparse_expr(p, &value));
        cb_jnode_add(l, key);
        cb_jnode_add(l, value);
    }
    p->t++;
    return CB_OK;
}

static int parse_paren(struct parser *p, struct node **out)
{
    if (cb_jskip_op(p, ')'))
        return cb_jnode(p, N_TUPLE, out);
    TRY(cb_jparse_tuple(p, 1, out));
    return cb_jtake_op(p, ')');
}

/* Texts that follow one another are one. */
static int parse_const(struct parser *p, struct node *n)
{
    struct jout o = { .r = p->r };

    n->v = p->t->v;
    if (n->v.kind != J_STR || p->t[1].kind != T_CONST) {
        p->t++;
        return CB_OK;
    }
    for (; p->t->kind == T_CONST && p->t->v.kind == J_STR; p->t++)
        TRY(cb_jout_put(&o, p->t->v.str));
    n->v = cb_jout_str(&o);
    return CB_OK;
}

static int parse_name(struct parser *p, struct node *n)
{
    const struct jv v = p->t++->v;

    n->kind = N_CONST;
    if (cb_jis(&v, "true") || cb_jis(&v, "True")) {
        n->v = cb_jbool(1);
    } else if (cb_jis(&v, "false") || cb_jis(&v, "False")) {
        n->v = cb_jbool(0);
    } else if (cb_jis(&v, "none") || cb_jis(&v, "None")) {
        n->v.kind = J_NONE;
    } else {
        n->kind = N_NAME;
        n->v = v;
    }
    return CB_OK;
}

static int parse_primary(struct parser *p, struct node **out)
{
    struct node_list l = { 0 };

    if (cb_jskip_op(p, '('))
        return parse_paren(p, out);
    TRY(cb_jnode(p, N_CONST, out));
    if (p->t->kind == T_NAME)
        return parse_name(p, *out);
    if (p->t->kind == T_CONST)
        return parse_const(p, *out);
    if (cb_jskip_op(p, '[')) {
        (*out)->kind = N_LIST;
        TRY(parse_list(p, ']', &l));
    } else if (cb_jskip_op(p, '{')) {
        (*out)->kind = N_DICT;
        TRY(parse_dict(p, &l));
    } else {
        return cb_jparse_fail(p, "a value");
    }
    (*out)->kids = l.first;
    return CB_OK;
}

/* ---- what stands after a value ---- */

static int parse_arg(struct parser *p, struct node **out)
{
    struct node *n;

    if (cb_jis_op(p, '*') || cb_jis_op(p, 'p'))
        return cb_jparse_fail(p, "an argument (those of * and ** are not supported)");
    if (p->t->kind != T_NAME || p->t[1].kind != T_OP || p->t[1].op != 'a')
        return cb_jparse_expr(p, out);
    TRY(cb_jnode(p, N_KWARG, &n));
    n->v = p->t->v;
    p->t += 2;
    *out = n;
    return cb_jparse_expr(p, &n->a);
}

/* After '(' */
static int parse_args(struct parser *p, struct node **out)
{
    struct node_list l = { 0 };

    while (!cb_jis_op(p, ')')) {
        struct node *n;
        if (l.first)
            TRY(cb_jtake_op(p, ','));
        if (cb_jis_op(p, ')'))
            break;
        TRY(parse_arg(p, &n));
        if (l.last && l.last->kind == N_KWARG && n->kind != N_KWARG)
            return cb_jparse_fail(p, "a named argument");
        cb_jnode_add(&l, n);
    }
    p->t++;
    *out = l.first;
    return CB_OK;
}

static int parse_call(struct parser *p, struct node *in, struct node **out)
{
    TRY(cb_jnode(p, N_CALL, out));
    p->t++;
    (*out)->a = in;
    return parse_args(p, &(*out)->kids);
}

/* Between brackets: an index or from:to:step */
static int parse_index(struct parser *p, struct node *item)
{
    struct node *part[3], *first = NULL;
    struct node_list l = { 0 };
    int slice = 0;

    for (int i = 0; i < 3; i++) {
        TRY(cb_jnode(p, N_CONST, &part[i]));
        part[i]->v.kind = J_NONE;
    }
    for (int i = 0; i < 3; i++) {
        if (!cb_jis_op(p, ':') && !cb_jis_op(p, ']'))
            TRY(cb_jparse_expr(p, &part[i]));
        first = i ? first : part[0];
        if (!cb_jskip_op(p, ':'))
            break;
        slice = 1;
    }
    TRY(cb_jtake_op(p, ']'));
    if (!slice) {
        item->b = first;
        return first->v.kind == J_NONE && first->kind == N_CONST
                   ? cb_jparse_fail(p, "an index in front,")
                   : CB_OK;
    }
    item->kind = N_SLICE;
    for (int i = 0; i < 3; i++)
        cb_jnode_add(&l, part[i]);
    item->kids = l.first;
    return CB_OK;
}

static int parse_dot(struct parser *p, struct node *n)
{
    p->t++;
    if (p->t->kind == T_NAME) {
        n->kind = N_ATTR;
        n->v = p->t++->v;
        return CB_OK;
    }
    if (p->t->kind != T_CONST || p->t->v.kind != J_INT)
        return cb_jparse_fail(p, "a name or a number");
    TRY(cb_jnode(p, N_CONST, &n->b));
    n->b->v = p->t++->v;
    return CB_OK;
}

static int parse_postfix(struct parser *p, struct node **io)
{
    for (;;) {
        struct node *n;
        if (cb_jis_op(p, '(')) {
            TRY(parse_call(p, *io, io));
            continue;
        }
        if (!cb_jis_op(p, '.') && !cb_jis_op(p, '['))
            return CB_OK;
        TRY(cb_jnode(p, N_ITEM, &n));
        n->a = *io;
        if (cb_jis_op(p, '.')) {
            TRY(parse_dot(p, n));
        } else {
            p->t++;
            TRY(parse_index(p, n));
        }
        *io = n;
    }
}

static int unknown(struct parser *p, const char *what, struct jstr name)
{
    p->r->line = p->t->line;
    return cb_jfail(p->r, "no %s has the name \"%.*s\"", what, name.n < 60 ? (int)name.n : 60,
                    name.s);
}

int cb_jparse_filters(struct parser *p, struct node *in, int bare, struct node **out)
{
    *out = in;
    while (bare || cb_jskip_op(p, '|')) {
        struct node *n;
        bare = 0;
        TRY(cb_jnode(p, N_FILTER, &n));
        TRY(cb_jtake_name(p, &n->v));
        n->fn = cb_jfilter(&n->v.str);
        if (!n->fn)
            return unknown(p, "filter", n->v.str);
        if (cb_jskip_op(p, '('))
            TRY(parse_args(p, &n->kids));
        n->a = *out;
        *out = n;
    }
    return CB_OK;
}

/* May the next token be the argument of a test without parentheses? */
static int begins_arg(const struct parser *p)
{
    if (p->t->kind == T_NAME)
        return !cb_jis_name(p, "else") && !cb_jis_name(p, "or") && !cb_jis_name(p, "and") &&
               !cb_jis_name(p, "is") && !cb_jis_name(p, "if");
    return p->t->kind == T_CONST || cb_jis_op(p, '[') || cb_jis_op(p, '{');
}

static int parse_test(struct parser *p, struct node *in, struct node **out)
{
    struct node *n;

    TRY(cb_jnode(p, N_TEST, &n));
    n->op = cb_jskip_name(p, "not");
    TRY(cb_jtake_name(p, &n->v));
    n->fn = cb_jtest(&n->v.str);
    if (!n->fn)
        return unknown(p, "test", n->v.str);
    if (cb_jskip_op(p, '(')) {
        TRY(parse_args(p, &n->kids));
    } else if (begins_arg(p)) {
        TRY(parse_primary(p, &n->kids));
        TRY(parse_postfix(p, &n->kids));
    }
    n->a = in;
    *out = n;
    return CB_OK;
}

static int parse_behind(struct parser *p, struct node **io)
{
    for (;;) {
        if (cb_jis_op(p, '|'))
            TRY(cb_jparse_filters(p, *io, 0, io));
        else if (cb_jskip_name(p, "is"))
            TRY(parse_test(p, *io, io));
        else if (cb_jis_op(p, '('))
            TRY(parse_call(p, *io, io));
        else
            return CB_OK;
    }
}

/* ---- operators ---- */

static int parse_unary(struct parser *p, int with_filters, struct node **out)
{
    const enum node_kind kind = cb_jis_op(p, '-') ? N_NEG : N_POS;

    if (cb_jis_op(p, '-') || cb_jis_op(p, '+')) {
        int rc;
        TRY(cb_jnode(p, kind, out));
        p->t++;
        TRY(cb_jdeeper(p->r));
        rc = parse_unary(p, 0, &(*out)->a);
        p->r->depth--;
        TRY(rc);
    } else {
        TRY(parse_primary(p, out));
    }
    TRY(parse_postfix(p, out));
    return with_filters ? parse_behind(p, out) : CB_OK;
}

/* The binary operators from the loosest; all group to the left. */
static const char *const levels[] = { "+-", "~", "*/d%", "p" };

static int parse_binary(struct parser *p, int level, struct node **out)
{
    if (level == 4)
        return parse_unary(p, 1, out);
    TRY(parse_binary(p, level + 1, out));
    while (p->t->kind == T_OP && strchr(levels[level], p->t->op)) {
        struct node *n;
        TRY(cb_jnode(p, N_BINARY, &n));
        n->op = p->t++->op;
        n->a = *out;
        TRY(parse_binary(p, level + 1, &n->b));
        *out = n;
    }
    return CB_OK;
}

/* The comparison that stands here, 0 = none */
static int comparison(struct parser *p)
{
    if (p->t->kind == T_OP && strchr("<>lg=!", p->t->op))
        return p->t++->op;
    if (cb_jskip_name(p, "in"))
        return 'i';
    if (!cb_jis_name(p, "not") || p->t[1].kind != T_NAME || !cb_jis(&p->t[1].v, "in"))
        return 0;
    p->t += 2;
    return 'n';
}

static int parse_compare(struct parser *p, struct node **out)
{
    struct node_list l = { 0 };
    struct node *n, *first;
    int op;

    TRY(parse_binary(p, 0, out));
    first = *out;
    while ((op = comparison(p))) {
        struct node *operand;
        TRY(parse_binary(p, 0, &operand));
        TRY(cb_jnode(p, N_COMPARE, &n)); /* an operand in a list of its own */
        n->op = op;
        n->a = operand;
        cb_jnode_add(&l, n);
    }
    if (!l.first)
        return CB_OK;
    TRY(cb_jnode(p, N_COMPARE, out));
    (*out)->a = first;
    (*out)->kids = l.first;
    return CB_OK;
}

static int parse_not(struct parser *p, struct node **out)
{
    int rc;

    if (!cb_jis_name(p, "not"))
        return parse_compare(p, out);
    TRY(cb_jnode(p, N_NOT, out));
    p->t++;
    TRY(cb_jdeeper(p->r));
    rc = parse_not(p, &(*out)->a);
    p->r->depth--;
    return rc;
}

static int parse_and(struct parser *p, struct node **out)
{
    TRY(parse_not(p, out));
    while (cb_jskip_name(p, "and")) {
        struct node *n;
        TRY(cb_jnode(p, N_AND, &n));
        n->a = *out;
        TRY(parse_not(p, &n->b));
        *out = n;
    }
    return CB_OK;
}

/* An expression without if and else */
static int parse_or(struct parser *p, struct node **out)
{
    TRY(parse_and(p, out));
    while (cb_jskip_name(p, "or")) {
        struct node *n;
        TRY(cb_jnode(p, N_OR, &n));
        n->a = *out;
        TRY(parse_and(p, &n->b));
        *out = n;
    }
    return CB_OK;
}

static int parse_if_else(struct parser *p, struct node **out)
{
    TRY(parse_or(p, out));
    while (cb_jskip_name(p, "if")) {
        struct node *n;
        TRY(cb_jnode(p, N_IF_ELSE, &n));
        n->b = *out;
        TRY(parse_or(p, &n->a));
        if (cb_jskip_name(p, "else"))
            TRY(cb_jparse_expr(p, &n->c));
        *out = n;
    }
    return CB_OK;
}

int cb_jparse_expr(struct parser *p, struct node **out)
{
    int rc;

    TRY(cb_jdeeper(p->r));
    rc = parse_if_else(p, out);
    p->r->depth--;
    return rc;
}

/* ---- tuples and targets ---- */

static int tuple_ends(const struct parser *p)
{
    return p->t->kind == T_PRINT_END || p->t->kind == T_BLOCK_END || cb_jis_op(p, ')') ||
           cb_jis_name(p, "in") || cb_jis_name(p, "recursive");
}

int cb_jparse_tuple(struct parser *p, int if_else, struct node **out)
{
    struct node_list l = { 0 };
    struct node *n;
    int tuple = 0;

    do {
        if (l.first && tuple_ends(p))
            break;
        TRY(if_else ? cb_jparse_expr(p, &n) : parse_or(p, &n));
        cb_jnode_add(&l, n);
        tuple |= cb_jis_op(p, ',');
    } while (cb_jskip_op(p, ','));
    *out = l.first;
    if (!tuple)
        return CB_OK;
    TRY(cb_jnode(p, N_TUPLE, out));
    (*out)->kids = l.first;
    return CB_OK;
}

static int parse_one_target(struct parser *p, int attribute, struct node **out)
{
    TRY(cb_jnode(p, N_NAME, out));
    if (cb_jskip_op(p, '(')) {
        TRY(cb_jdeeper(p->r));
        const int rc = cb_jparse_target(p, 0, out);
        p->r->depth--;
        TRY(rc);
        return cb_jtake_op(p, ')');
    }
    if (cb_jis_name(p, "true") || cb_jis_name(p, "false") || cb_jis_name(p, "none"))
        return cb_jparse_fail(p, "a variable's name");
    TRY(cb_jtake_name(p, &(*out)->v));
    if (!attribute || !cb_jskip_op(p, '.'))
        return CB_OK;
    (*out)->kind = N_NSATTR;
    TRY(cb_jnode(p, N_NAME, &(*out)->b));
    return cb_jtake_name(p, &(*out)->b->v);
}

int cb_jparse_target(struct parser *p, int attribute, struct node **out)
{
    struct node_list l = { 0 };
    struct node *n;
    int tuple = 0;

    do {
        if (l.first && (tuple_ends(p) || cb_jis_op(p, 'a')))
            break;
        TRY(parse_one_target(p, attribute, &n));
        cb_jnode_add(&l, n);
        tuple |= cb_jis_op(p, ',');
    } while (cb_jskip_op(p, ','));
    *out = l.first;
    if (!tuple)
        return CB_OK;
    TRY(cb_jnode(p, N_TUPLE, out));
    (*out)->kids = l.first;
    return CB_OK;
}
