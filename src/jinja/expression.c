/* SPDX-License-Identifier: MIT */
/* expression.c - the values of expressions. */
#include "expression.h"

#include <string.h>

#include "members.h"
#include "operators.h"

/* ---- variables ---- */

static int same_name(const struct jstr *a, const struct jstr *b)
{
    return a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
}

static struct var *find_var(struct scope *s, const struct jstr *name, uint64_t *steps)
{
    for (struct var *v = s->var; v; v = v->next, ++*steps)
        if (same_name(&v->name, name))
            return v;
    return NULL;
}

int cb_jscope_set(struct jrun *r, struct scope *s, const struct jstr *name, const struct jv *v)
{
    struct var *x = find_var(s, name, &r->steps);

    TRY(cb_jstep(r, 0));
    if (!x) {
        x = cb_jalloc(r, 1, sizeof *x);
        if (!x)
            return CB_ENOMEM;
        x->name = *name;
        x->next = s->var;
        s->var = x;
    }
    x->value = *v;
    return CB_OK;
}

static int global(struct jrun *r, const struct jstr *name, struct jv *out)
{
    const jfn fn = cb_jglobal(name);
    struct jfunc *f;

    *out = (struct jv){ .kind = J_UNDEFINED, .str = *name };
    if (!fn)
        return CB_OK;
    f = cb_jalloc(r, 1, sizeof *f);
    if (!f)
        return CB_ENOMEM;
    f->fn = fn;
    *out = (struct jv){ .kind = J_FUNC, .func = f };
    return CB_OK;
}

static int look_up(struct jrun *r, struct scope *s, const struct jstr *name, struct jv *out)
{
    const struct jv key = cb_jstr_of(*name);
    const struct jv *given;

    for (; s; s = s->up) {
        const struct var *v = find_var(s, name, &r->steps);
        if (v) {
            *out = v->value;
            return CB_OK;
        }
    }
    TRY(cb_jdict_get(r, r->machine->given, &key, &given));
    if (!given)
        return global(r, name, out);
    *out = *given;
    return CB_OK;
}

static int unpack(struct jrun *r, struct scope *s, const struct node *target, const struct jv *v)
{
    struct jv list;
    size_t i = 0;

    TRY(cb_jitems(r, v, &list));
    for (const struct node *n = target->kids; n; n = n->next, i++) {
        if (i >= list.list->n)
            return cb_jfail(r, "too few values to unpack");
        TRY(cb_jassign(r, s, n, &list.list->at[i]));
    }
    return i == list.list->n ? CB_OK : cb_jfail(r, "too many values to unpack");
}

int cb_jassign(struct jrun *r, struct scope *s, const struct node *target, const struct jv *v)
{
    const struct jstr *name = &target->v.str;
    struct jv space;

    if (target->kind == N_NAME)
        return cb_jscope_set(r, s, name, v);
    if (target->kind == N_TUPLE)
        return unpack(r, s, target, v);
    TRY(look_up(r, s, name, &space));
    if (space.kind != J_NAMESPACE)
        return cb_jfail(r, "%.*s is no namespace", name->n < 60 ? (int)name->n : 60, name->s);
    return cb_jdict_put(r, space.dict, &target->b->v, v);
}

/* ---- calls ---- */

struct args {
    struct jv *at;
    struct jkwarg *kw;
    struct jargs a;
};

static int eval_args(struct jrun *r, struct scope *s, const struct node *kids,
                     const struct jkwarg *more, struct args *out)
{
    size_t n = 0, n_kw = more != NULL;

    *out = (struct args){ 0 };
    for (const struct node *k = kids; k; k = k->next) {
        n += k->kind != N_KWARG;
        n_kw += k->kind == N_KWARG;
    }
    if (n && !(out->at = cb_jalloc(r, n, sizeof *out->at)))
        return CB_ENOMEM;
    if (n_kw && !(out->kw = cb_jalloc(r, n_kw, sizeof *out->kw)))
        return CB_ENOMEM;
    out->a = (struct jargs){ .at = out->at, .kw = out->kw };
    for (const struct node *k = kids; k; k = k->next) {
        if (k->kind != N_KWARG) {
            TRY(cb_jeval(r, s, k, NULL, &out->at[out->a.n++]));
            continue;
        }
        out->kw[out->a.n_kw].name = k->v.str;
        TRY(cb_jeval(r, s, k->a, NULL, &out->kw[out->a.n_kw++].value));
    }
    if (more)
        out->kw[out->a.n_kw++] = *more;
    return CB_OK;
}

static int call_value(struct jrun *r, const struct jv *f, const struct jargs *a, struct jv *out)
{
    if (f->kind == J_LOOP) {
        if (a->n != 1 || a->n_kw || !f->loop->n->op)
            return cb_jfail(r, "loop() is for recursive loops and takes the elements");
        return r->machine->loop(r, f->loop, &a->at[0], out);
    }
    if (f->kind == J_UNDEFINED)
        return cb_jfail(r, "'%.*s' is undefined", f->str.n < 60 ? (int)f->str.n : 60, f->str.s);
    if (f->kind != J_FUNC)
        return cb_jfail(r, "a %s cannot be called", cb_jkind_name(f));
    if (f->func->fn)
        return f->func->fn(r, &f->func->self, a, out);
    return r->machine->macro(r, f->func->macro, a, out);
}

int cb_jeval_call(struct jrun *r, struct scope *s, const struct node *n, const struct jkwarg *more,
                  struct jv *out)
{
    struct args args;
    struct jv f;

    TRY(cb_jeval(r, s, n->a, NULL, &f));
    TRY(eval_args(r, s, n->kids, more, &args));
    r->line = n->line;
    return call_value(r, &f, &args.a, out);
}

/* Filters and tests */
static int apply(struct jrun *r, struct scope *s, const struct node *n, const struct jv *in,
                 struct jv *out)
{
    struct args args;
    struct jv v;

    TRY(cb_jeval(r, s, n->a, in, &v));
    TRY(eval_args(r, s, n->kids, NULL, &args));
    r->line = n->line;
    TRY(n->fn(r, &v, &args.a, out));
    if (n->kind == N_TEST && n->op)
        *out = cb_jbool(!cb_jtrue(out));
    return CB_OK;
}

/* ---- loop.NAME ---- */

static int cycle(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out)
{
    if (!a->n)
        return cb_jfail(r, "loop.cycle lacks its values");
    *out = a->at[self->loop->i % a->n];
    return CB_OK;
}

static int changed(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out)
{
    struct jv list;
    int same;

    TRY(cb_jlist_new(r, a->n, &list));
    for (size_t i = 0; i < a->n; i++)
        TRY(cb_jlist_add(r, &list, &a->at[i]));
    TRY(cb_jequal(r, &self->loop->changed, &list, &same));
    self->loop->changed = list;
    *out = cb_jbool(!same);
    return CB_OK;
}

static int loop_method(struct jrun *r, const struct jv *loop, jfn fn, struct jv *out)
{
    struct jfunc *f = cb_jalloc(r, 1, sizeof *f);

    if (!f)
        return CB_ENOMEM;
    *f = (struct jfunc){ .fn = fn, .self = *loop };
    *out = (struct jv){ .kind = J_FUNC, .func = f };
    return CB_OK;
}

static int loop_attr(struct jrun *r, const struct jv *v, const struct jv *name, struct jv *out)
{
    const struct jloop *l = v->loop;
    const int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        struct jv value;
    } attrs[] = {
        { "index", cb_jint(i + 1) },
        { "index0", cb_jint(i) },
        { "revindex", cb_jint(n - i) },
        { "revindex0", cb_jint(n - i - 1) },
        { "first", cb_jbool(i == 0) },
        { "last", cb_jbool(i == n - 1) },
        { "length", cb_jint(n) },
        { "depth", cb_jint(l->depth + 1) },
        { "depth0", cb_jint(l->depth) },
        { "previtem", i > 0 ? l->items->at[i - 1] : cb_jundef("previtem") },
        { "nextitem", i + 1 < n ? l->items->at[i + 1] : cb_jundef("nextitem") },
    };

    for (size_t k = 0; k < sizeof attrs / sizeof *attrs; k++) {
        if (cb_jis(name, attrs[k].name)) {
            *out = attrs[k].value;
            return CB_OK;
        }
    }
    if (cb_jis(name, "cycle"))
        return loop_method(r, v, cycle, out);
    if (cb_jis(name, "changed"))
        return loop_method(r, v, changed, out);
    *out = (struct jv){ .kind = J_UNDEFINED, .str = name->str };
    return CB_OK;
}

/* ---- expressions ---- */

static int eval_list(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    TRY(cb_jlist_new(r, 0, out));
    for (const struct node *k = n->kids; k; k = k->next) {
        struct jv v;
        TRY(cb_jeval(r, s, k, NULL, &v));
        TRY(cb_jlist_add(r, out, &v));
    }
    if (n->kind == N_TUPLE)
        out->kind = J_TUPLE;
    return CB_OK;
}

static int eval_dict(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    TRY(cb_jdict_new(r, out));
    for (const struct node *k = n->kids; k; k = k->next->next) {
        struct jv key, value;
        TRY(cb_jeval(r, s, k, NULL, &key));
        TRY(cb_jeval(r, s, k->next, NULL, &value));
        TRY(cb_jdict_put(r, out->dict, &key, &value));
    }
    return CB_OK;
}

static int eval_attr(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    struct jv v, key;

    TRY(cb_jeval(r, s, n->a, NULL, &v));
    if (n->kind == N_ATTR) {
        r->line = n->line;
        return v.kind == J_LOOP ? loop_attr(r, &v, &n->v, out) : cb_jattr(r, &v, &n->v.str, out);
    }
    TRY(cb_jeval(r, s, n->b, NULL, &key));
    r->line = n->line;
    if (v.kind == J_LOOP && key.kind == J_STR)
        return loop_attr(r, &v, &key, out);
    return cb_jitem(r, &v, &key, out);
}

static int eval_slice(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    const struct node *k = n->kids;
    struct jv v, at[3];

    TRY(cb_jeval(r, s, n->a, NULL, &v));
    for (int i = 0; i < 3; i++, k = k->next)
        TRY(cb_jeval(r, s, k, NULL, &at[i]));
    return cb_jrange(r, &v, at, out);
}

static int eval_compare(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    struct jv left, right;
    int yes = 1;

    TRY(cb_jeval(r, s, n->a, NULL, &left));
    for (const struct node *k = n->kids; k && yes; k = k->next) {
        TRY(cb_jeval(r, s, k->a, NULL, &right));
        r->line = k->line;
        TRY(cb_jcompares(r, k->op, &left, &right, &yes));
        left = right;
    }
    *out = cb_jbool(yes);
    return CB_OK;
}

static int eval_binary(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    struct jv a, b;

    TRY(cb_jeval(r, s, n->a, NULL, &a));
    TRY(cb_jeval(r, s, n->b, NULL, &b));
    r->line = n->line;
    return cb_jbinary(r, n->op, &a, &b, out);
}

/* and, or: the operand that decides */
static int eval_logic(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    TRY(cb_jeval(r, s, n->a, NULL, out));
    if (cb_jtrue(out) != (n->kind == N_AND))
        return CB_OK;
    return cb_jeval(r, s, n->b, NULL, out);
}

static int eval_if_else(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    struct jv yes;

    TRY(cb_jeval(r, s, n->a, NULL, &yes));
    if (cb_jtrue(&yes))
        return cb_jeval(r, s, n->b, NULL, out);
    if (n->c)
        return cb_jeval(r, s, n->c, NULL, out);
    *out = cb_jundef("the other value of an if");
    return CB_OK;
}

static int eval_sign(struct jrun *r, struct scope *s, const struct node *n, struct jv *out)
{
    struct jv v;

    TRY(cb_jeval(r, s, n->a, NULL, &v));
    if (n->kind == N_NOT) {
        *out = cb_jbool(!cb_jtrue(&v));
        return CB_OK;
    }
    r->line = n->line;
    if (!cb_jis_num(&v))
        return cb_jfail(r, "a %s has no sign", cb_jkind_name(&v));
    if (n->kind == N_NEG)
        return cb_jnegative(r, &v, out);
    *out = v;
    return CB_OK;
}

static int eval(struct jrun *r, struct scope *s, const struct node *n, const struct jv *in,
                struct jv *out)
{
    switch (n->kind) {
    case N_CONST:
        *out = n->v;
        return CB_OK;
    case N_INPUT:
        *out = *in;
        return CB_OK;
    case N_NAME:
        return look_up(r, s, &n->v.str, out);
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, s, n, out);
    case N_DICT:
        return eval_dict(r, s, n, out);
    case N_ATTR:
    case N_ITEM:
        return eval_attr(r, s, n, out);
    case N_SLICE:
        return eval_slice(r, s, n, out);
    case N_CALL:
        return cb_jeval_call(r, s, n, NULL, out);
    case N_FILTER:
    case N_TEST:
        return apply(r, s, n, in, out);
    case N_NOT:
    case N_NEG:
    case N_POS:
        return eval_sign(r, s, n, out);
    case N_AND:
    case N_OR:
        return eval_logic(r, s, n, out);
    case N_IF_ELSE:
        return eval_if_else(r, s, n, out);
    case N_BINARY:
        return eval_binary(r, s, n, out);
    case N_COMPARE:
        return eval_compare(r, s, n, out);
    default:
        return cb_jfail(r, "not an expression");
    }
}

int cb_jeval(struct jrun *r, struct scope *s, const struct node *n, const struct jv *in,
             struct jv *out)
{
    int rc;

    TRY(cb_jstep(r, 0));
    TRY(cb_jdeeper(r));
    rc = eval(r, s, n, in, out);
    r->depth--;
    return rc;
}
