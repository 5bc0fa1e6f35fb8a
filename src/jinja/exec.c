/* SPDX-License-Identifier: MIT */
/* exec.c - statements: what a template writes. */
#include <string.h>

#include "expression.h"
#include "jinja.h"
#include "jprint.h"

enum { FLOW_BREAK = 1, FLOW_CONTINUE }; /* how statements end that do not fail */

/* 0, a flow, or negative: failed */
static int exec_all(struct jrun *r, struct scope *s, const struct node *first, struct jout *o);

static struct scope *inner(struct jrun *r, struct scope *up)
{
    struct scope *s = cb_jalloc(r, 1, sizeof *s);

    if (s)
        s->up = up;
    return s;
}

/* What statements write -> *out. A break or continue does not leave them. */
static int capture(struct jrun *r, struct scope *up, const struct node *kids, struct jv *out)
{
    struct jout o = { .r = r };
    struct scope *s = inner(r, up);

    if (!s)
        return CB_ENOMEM;
    TRY(exec_all(r, s, kids, &o));
    *out = cb_jout_str(&o);
    return CB_OK;
}

/* ---- loops ---- */

/* The elements for which the loop's condition holds */
static int chosen(struct jrun *r, struct scope *s, const struct node *n, const struct jv *from,
                  struct jv *out)
{
    TRY(cb_jlist_new(r, 0, out));
    for (size_t i = 0; i < from->list->n; i++) {
        struct scope *in = inner(r, s);
        struct jv yes;
        if (!in)
            return CB_ENOMEM;
        TRY(cb_jassign(r, in, n->a, &from->list->at[i]));
        TRY(cb_jeval(r, in, n->c, NULL, &yes));
        if (cb_jtrue(&yes))
            TRY(cb_jlist_add(r, out, &from->list->at[i]));
    }
    return CB_OK;
}

static int pass(struct jrun *r, struct scope *s, struct jloop *l, struct jout *o)
{
    const struct jstr name = cb_jtext("loop").str;
    const struct jv loop = { .kind = J_LOOP, .loop = l };
    struct scope *in = inner(r, s);

    if (!in)
        return CB_ENOMEM;
    TRY(cb_jscope_set(r, in, &name, &loop));
    TRY(cb_jassign(r, in, l->n->a, &l->items->at[l->i]));
    return exec_all(r, in, l->n->kids, o);
}

static int loop_over(struct jrun *r, struct scope *s, const struct node *n, const struct jv *v,
                     int depth, struct jout *o)
{
    struct jloop *l = cb_jalloc(r, 1, sizeof *l);
    struct jv all, items;
    int rc = CB_OK, whole = 0;

    if (!l)
        return CB_ENOMEM;
    TRY(cb_jitems(r, v, &all));
    items = all;
    if (n->c)
        TRY(chosen(r, s, n, &all, &items));
    *l = (struct jloop){ .items = items.list, .depth = depth, .n = n, .scope = s };
    for (; l->i < items.list->n && rc != FLOW_BREAK; l->i++) {
        rc = pass(r, s, l, o);
        TRY(rc);
        whole |= rc == CB_OK;
    }
    /* jinja2 takes the else as well where each pass ended by break or continue */
    return whole ? CB_OK : exec_all(r, s, n->other, o);
}

static int exec_for(struct jrun *r, struct scope *s, const struct node *n, struct jout *o)
{
    struct jv v;

    TRY(cb_jeval(r, s, n->b, NULL, &v));
    r->line = n->line;
    return loop_over(r, s, n, &v, 0, o);
}

/* loop(items) within a recursive loop */
static int call_loop(struct jrun *r, const struct jloop *l, const struct jv *items, struct jv *out)
{
    struct jout o = { .r = r };

    TRY(loop_over(r, l->scope, l->n, items, l->depth + 1, &o));
    *out = cb_jout_str(&o);
    return CB_OK;
}

/* ---- macros ---- */

static int bind(struct jrun *r, struct scope *s, const struct node *params, const struct jargs *a)
{
    size_t i = 0, named = 0;

    for (const struct node *p = params; p; p = p->next, i++) {
        struct jv v = { .kind = J_UNDEFINED, .str = p->v.str };
        int given = i < a->n;
        if (given)
            v = a->at[i];
        for (size_t k = 0; k < a->n_kw && !given; k++) {
            const struct jv name = cb_jstr_of(a->kw[k].name);
            TRY(cb_jequal(r, &name, &p->v, &given));
            named += given != 0;
            if (given)
                v = a->kw[k].value;
        }
        if (!given && p->a)
            TRY(cb_jeval(r, s, p->a, NULL, &v));
        TRY(cb_jscope_set(r, s, &p->v.str, &v));
    }
    for (size_t k = 0; k < a->n_kw; k++) {
        const struct jv name = cb_jstr_of(a->kw[k].name);
        if (cb_jis(&name, "caller")) {
            TRY(cb_jscope_set(r, s, &name.str, &a->kw[k].value));
            named++;
        }
    }
    if (a->n > i || named < a->n_kw)
        return cb_jfail(r, "the macro has no place for one of the arguments");
    return CB_OK;
}

static int call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *a, struct jv *out)
{
    struct scope *s = inner(r, m->scope);

    if (!s)
        return CB_ENOMEM;
    TRY(bind(r, s, m->n->params, a));
    return capture(r, s, m->n->kids, out);
}

static int new_macro(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    struct jfunc *f = cb_jalloc(r, 1, sizeof *f);
    struct jmacro *m = cb_jalloc(r, 1, sizeof *m);

    if (!f || !m)
        return CB_ENOMEM;
    *m = (struct jmacro){ .n = n, .scope = s };
    f->macro = m;
    *out = (struct jv){ .kind = J_FUNC, .func = f };
    return CB_OK;
}

static int exec_call_block(struct jrun *r, struct scope *s, const struct node *n, struct jout *o)
{
    struct jkwarg caller = { .name = cb_jtext("caller").str };
    struct jv v;

    TRY(new_macro(r, s, n, &caller.value));
    TRY(cb_jeval_call(r, s, n->a, &caller, &v));
    return cb_jprint(o, &v);
}

/* ---- statements ---- */

static int exec_if(struct jrun *r, struct scope *s, const struct node *n, struct jout *o)
{
    for (; n; n = n->other) {
        struct jv yes;
        TRY(cb_jeval(r, s, n->a, NULL, &yes));
        if (cb_jtrue(&yes))
            return exec_all(r, s, n->kids, o);
        if (n->op)
            return exec_all(r, s, n->other, o);
    }
    return CB_OK;
}

static int exec_set(struct jrun *r, struct scope *s, const struct node *n)
{
    struct jv v, text;

    if (n->kind == N_SET) {
        TRY(cb_jeval(r, s, n->b, NULL, &v));
    } else {
        TRY(capture(r, s, n->kids, &text));
        TRY(cb_jeval(r, s, n->b, &text, &v));
    }
    r->line = n->line;
    return cb_jassign(r, s, n->a, &v);
}

static int exec_with(struct jrun *r, struct scope *s, const struct node *n, struct jout *o)
{
    struct scope *in = inner(r, s);

    if (!in)
        return CB_ENOMEM;
    for (const struct node *p = n->params; p; p = p->next) {
        struct jv v;
        TRY(cb_jeval(r, s, p->a, NULL, &v)); /* the values do not see one another */
        TRY(cb_jscope_set(r, in, &p->v.str, &v));
    }
    return exec_all(r, in, n->kids, o);
}

static int exec_print(struct jrun *r, struct scope *s, const struct node *n, struct jout *o)
{
    struct jv v, text;

    switch (n->kind) {
    case N_TEXT:
        return cb_jout_put(o, n->v.str);
    case N_FILTERED:
        TRY(capture(r, s, n->kids, &text));
        TRY(cb_jeval(r, s, n->b, &text, &v));
        return cb_jprint(o, &v);
    case N_SCOPE:
        TRY(capture(r, s, n->kids, &v));
        return cb_jprint(o, &v);
    default:
        TRY(cb_jeval(r, s, n->a, NULL, &v));
        return cb_jprint(o, &v);
    }
}

static int exec_macro(struct jrun *r, struct scope *s, const struct node *n)
{
    struct jv v;

    TRY(new_macro(r, s, n, &v));
    return cb_jscope_set(r, s, &n->v.str, &v);
}

static int exec(struct jrun *r, struct scope *s, const struct node *n, struct jout *o)
{
    switch (n->kind) {
    case N_IF:
        return exec_if(r, s, n, o);
    case N_FOR:
        return exec_for(r, s, n, o);
    case N_SET:
    case N_SET_TO:
        return exec_set(r, s, n);
    case N_MACRO:
        return exec_macro(r, s, n);
    case N_CALL_BLOCK:
        return exec_call_block(r, s, n, o);
    case N_WITH:
        return exec_with(r, s, n, o);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return exec_print(r, s, n, o);
    }
}

static int exec_all(struct jrun *r, struct scope *s, const struct node *first, struct jout *o)
{
    int rc = CB_OK;

    TRY(cb_jdeeper(r));
    for (const struct node *n = first; n && !rc; n = n->next) {
        rc = cb_jstep(r, 0);
        r->line = n->line;
        if (!rc)
            rc = exec(r, s, n, o);
    }
    r->depth--;
    return rc;
}

/* ---- the whole ---- */

int cb_jinja_parse(struct jrun *r, const char *src, size_t n, const struct node **out)
{
    struct node *t;

    r->depth = 0;
    TRY(cb_jparse(r, src, n, &t));
    *out = t;
    return CB_OK;
}

int cb_jinja_render(struct jrun *r, const struct node *t, const struct jv *given, struct jstr *out)
{
    const struct jmachine machine = { call_macro, call_loop, given->dict };
    struct jout o = { .r = r, .limit = r->limit.output_bytes };
    struct scope *s = inner(r, NULL);
    int rc;

    if (!s)
        return CB_ENOMEM;
    r->machine = &machine;
    r->depth = 0;
    rc = exec_all(r, s, t, &o);
    r->machine = NULL;
    r->line = 0;
    TRY(rc);
    *out = cb_jout_str(&o).str;
    return CB_OK;
}
