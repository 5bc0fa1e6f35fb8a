/* SPDX-License-Identifier: MIT */
/* re.c - makes nodes of regular expressions, each once. */
#include "re.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "grammar_budget.h"
#include "readers.h"

/* Without memory there is no node at all: what is made of none is refused later. */
static const struct re_node *at(const struct re *x, re_id id)
{
    static const struct re_node none;

    return x->node ? &x->node[id] : &none;
}

static int is_list(int op)
{
    return op == RE_ALT || op == RE_AND;
}

/* ---- one node of each kind ---- */

struct wanted {
    const struct re *x;
    struct re_node node;
    const void *more; /* ranges or arguments [node.n] */
};

static int same_node(const void *ctx, int32_t id)
{
    const struct wanted *w = ctx;
    const struct re_node *a = &w->node, *b = at(w->x, id);

    if (a->op != b->op || a->n != b->n || a->min != b->min || a->max != b->max)
        return 0;
    if (a->op == RE_CHARS)
        return !a->n ||
               !memcmp(w->more, w->x->range + b->a, (size_t)a->n * sizeof(struct char_range));
    if (is_list(a->op))
        return !memcmp(w->more, w->x->arg + b->a, (size_t)a->n * sizeof(re_id));
    return a->a == b->a;
}

static uint64_t hash_of(const struct re *x, const struct re_node *node, const void *more)
{
    const struct hash_key *key = &x->nodes.key;
    const int32_t word[] = { node->op, node->n, node->min, node->max, more ? 0 : node->a };
    uint64_t h = cb_siphash(key, word, sizeof word);

    if (more && node->n)
        h ^= cb_siphash(key, more,
                        (size_t)node->n *
                            (node->op == RE_CHARS ? sizeof(struct char_range) : sizeof(re_id)));
    return h;
}

static int fail(struct re *x, int status)
{
    if (!x->failed)
        x->failed = status;
    return x->none;
}

/* Copies more[n] after an array; *a: where it lies */
static int store(struct re *x, void **to, size_t *used, size_t *cap, const void *more, size_t n,
                 size_t size, int32_t *a)
{
    TRY(cb_budget_grow(x->budget, to, cap, *used + n + 1, size));
    if (n)
        memcpy((char *)*to + *used * size, more, n * size);
    *a = (int32_t)*used;
    *used += n;
    return CB_OK;
}

/* The node with these members; more: its ranges or arguments, else NULL */
static re_id make(struct re *x, struct re_node node, const void *more)
{
    const struct wanted w = { x, node, more };
    const int32_t fresh = (int32_t)x->n_node;
    int32_t id;
    int rc = cb_budget_steps(x->budget, 1 + (more ? (size_t)node.n : 0));

    if (!rc)
        rc = cb_budget_grow(x->budget, (void **)&x->node, &x->cap_node, x->n_node + 1, sizeof node);
    if (rc || x->failed || x->n_node > INT32_MAX / 2)
        return fail(x, rc ? rc : CB_EUNSUPPORTED);
    id = cb_ids_find(&x->nodes, hash_of(x, &node, more), same_node, &w, fresh);
    if (id < 0)
        return fail(x, id);
    if (id != fresh)
        return id;
    if (more && node.op == RE_CHARS)
        rc = store(x, (void **)&x->range, &x->n_range, &x->cap_range, more, (size_t)node.n,
                   sizeof *x->range, &node.a);
    else if (more)
        rc = store(x, (void **)&x->arg, &x->n_arg, &x->cap_arg, more, (size_t)node.n,
                   sizeof *x->arg, &node.a);
    x->node[x->n_node++] = rc ? (struct re_node){ 0 } : node;
    return rc ? fail(x, rc) : fresh;
}

void cb_re_open(struct re *x, struct budget *b)
{
    struct char_range all = { 0, 0x10FFFF };

    *x = (struct re){ .budget = b };
    cb_ids_init(&x->nodes);
    x->none = make(x, (struct re_node){ .op = RE_NONE }, NULL);
    x->empty = make(x, (struct re_node){ .op = RE_EMPTY, .nullable = 1 }, NULL);
    x->any = cb_re_chars(x, &all, 1, 0);
    x->all = cb_re_repeat(x, x->any, 0, -1);
}

void cb_re_close(struct re *x)
{
    cb_budget_bytes(x->budget,
                    x->cap_node * sizeof *x->node + x->cap_range * sizeof *x->range +
                        x->cap_arg * sizeof *x->arg,
                    0);
    free(x->node);
    free(x->range);
    free(x->arg);
    cb_ids_free(&x->nodes);
}

/* ---- makers ---- */

re_id cb_re_chars(struct re *x, struct char_range *range, size_t n, int negated)
{
    struct char_range *out = cb_calloc(n + 1, sizeof *out);
    re_id id;

    if (!out)
        return fail(x, CB_ENOMEM);
    n = cb_ranges_join(range, n, negated, out);
    id = n ? make(x, (struct re_node){ .op = RE_CHARS, .n = (int32_t)n }, out) : x->none;
    free(out);
    return id;
}

re_id cb_re_cat(struct re *x, re_id a, re_id b)
{
    re_id *member = NULL;
    size_t n = 0, cap = 0;

    if (x->failed || a == x->none || b == x->none)
        return x->none;
    while (at(x, a)->op == RE_CAT) { /* the last member leads on to b */
        const int rc = cb_budget_grow(x->budget, (void **)&member, &cap, n + 1, sizeof a);
        if (rc) {
            fail(x, rc);
            a = x->empty;
            break;
        }
        member[n++] = at(x, a)->a;
        a = at(x, a)->n;
    }
    for (int more = 1; more && !x->failed; a = more ? member[n] : a) {
        if (a != x->empty && b != x->empty) {
            const struct re_node *p = at(x, a), *q = at(x, b);
            b = make(x,
                     (struct re_node){ .op = RE_CAT,
                                       .nullable = p->nullable && q->nullable,
                                       .special = p->special || q->special,
                                       .a = a,
                                       .n = b },
                     NULL);
        } else {
            b = b == x->empty ? a : b;
        }
        more = n > 0;
        n -= n > 0;
    }
    cb_budget_bytes(x->budget, cap * sizeof a, 0);
    free(member);
    return b;
}

static int ascending(const void *a, const void *b)
{
    const re_id *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* list[n] with the members of its own kind in place of them -> *out[*m], which the caller frees */
static int flat(struct re *x, enum re_op op, const re_id *list, size_t n, re_id **out, size_t *m)
{
    size_t total = n;

    for (size_t i = 0; i < n; i++)
        total += at(x, list[i])->op == op ? (size_t)at(x, list[i])->n : 0;
    TRY(cb_budget_steps(x->budget, total));
    *out = cb_calloc(total + 1, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    *m = 0;
    for (size_t i = 0; i < n; i++) {
        const struct re_node *p = at(x, list[i]);
        if (p->op != op)
            (*out)[(*m)++] = list[i];
        for (int32_t k = 0; p->op == op && k < p->n; k++)
            (*out)[(*m)++] = x->arg[p->a + k];
    }
    if (*m)
        qsort(*out, *m, sizeof **out, ascending);
    for (size_t i = n = 0; i < *m; i++)
        if (!n || (*out)[n - 1] != (*out)[i])
            (*out)[n++] = (*out)[i];
    *m = n;
    return CB_OK;
}

/* All classes of list[n] as one; those that were joined are taken out */
static re_id join_chars(struct re *x, re_id *list, size_t *n)
{
    struct char_range *all;
    size_t total = 0, k = 0, m = 0;
    re_id id;

    for (size_t i = 0; i < *n; i++)
        total += at(x, list[i])->op == RE_CHARS ? (size_t)at(x, list[i])->n : 0;
    all = cb_calloc(total + 1, sizeof *all);
    if (!all)
        return fail(x, CB_ENOMEM);
    for (size_t i = 0; i < *n; i++) {
        const struct re_node *p = at(x, list[i]);
        if (p->op != RE_CHARS) {
            list[m++] = list[i];
            continue;
        }
        memcpy(all + k, x->range + p->a, (size_t)p->n * sizeof *all);
        k += (size_t)p->n;
    }
    id = cb_re_chars(x, all, total, 0);
    free(all);
    *n = m;
    return id;
}

static re_id list_of(struct re *x, enum re_op op, const re_id *list, size_t n)
{
    struct re_node node = { .op = (uint8_t)op, .nullable = op == RE_AND, .n = (int32_t)n };

    for (size_t i = 0; i < n; i++) {
        const struct re_node *p = at(x, list[i]);
        node.nullable = op == RE_AND ? node.nullable && p->nullable : node.nullable || p->nullable;
        node.special |= p->special;
    }
    return n == 1 ? list[0] : make(x, node, list);
}

static int has(const re_id *list, size_t n, re_id id)
{
    return n && bsearch(&id, list, n, sizeof id, ascending) != NULL;
}

re_id cb_re_alt(struct re *x, re_id *list, size_t n)
{
    re_id *l = NULL, chars, id = x->none;
    size_t m = 0, chars_n = 0;
    int rc = x->failed ? x->failed : flat(x, RE_ALT, list, n, &l, &m);

    if (rc)
        return fail(x, rc);
    if (has(l, m, x->all)) {
        free(l);
        return x->all;
    }
    for (size_t i = 0; i < m; i++)
        chars_n += at(x, l[i])->op == RE_CHARS;
    if (chars_n > 1) {
        chars = join_chars(x, l, &m);
        l[m++] = chars;
        qsort(l, m, sizeof *l, ascending);
    }
    if (m && l[0] == x->none) { /* the first node of all */
        memmove(l, l + 1, (m - 1) * sizeof *l);
        m--;
    }
    if (m)
        id = list_of(x, RE_ALT, l, m);
    free(l);
    return id;
}

/* Two repetitions of any character are one. */
static void join_lengths(struct re *x, re_id *l, size_t *n)
{
    re_id one = -1;
    size_t m = 0;

    for (size_t i = 0; i < *n; i++) {
        const struct re_node *p = at(x, l[i]);
        if (p->op != RE_REPEAT || p->a != x->any) {
            l[m++] = l[i];
            continue;
        }
        if (one >= 0) {
            const struct re_node *q = at(x, one);
            const int min = p->min > q->min ? p->min : q->min;
            const int max = p->max < 0 ? q->max : q->max < 0 || p->max < q->max ? p->max : q->max;
            one = max >= 0 && max < min ? x->none : cb_re_repeat(x, x->any, min, max);
            if (one == x->none)
                break;
        } else {
            one = l[i];
        }
    }
    if (one == x->none) {
        l[0] = x->none;
        *n = 1;
        return;
    }
    if (one >= 0)
        l[m++] = one;
    *n = m;
    if (m)
        qsort(l, m, sizeof *l, ascending);
}

re_id cb_re_and(struct re *x, re_id *list, size_t n)
{
    re_id *l = NULL, id;
    size_t m = 0, k = 0;
    int rc = x->failed ? x->failed : flat(x, RE_AND, list, n, &l, &m);

    if (rc)
        return fail(x, rc);
    join_lengths(x, l, &m);
    for (size_t i = 0; i < m; i++)
        if (l[i] != x->all)
            l[k++] = l[i];
    if (k && l[0] == x->none)
        id = x->none;
    else if (!k)
        id = x->all;
    else
        id = list_of(x, RE_AND, l, k);
    if (has(l, k, x->empty))
        id = at(x, id)->nullable ? x->empty : x->none;
    free(l);
    return x->failed ? x->none : id;
}

re_id cb_re_and2(struct re *x, re_id a, re_id b)
{
    re_id both[2] = { a, b };

    return cb_re_and(x, both, 2);
}

re_id cb_re_not(struct re *x, re_id a)
{
    const struct re_node *p = at(x, a);

    if (x->failed || a == x->all)
        return x->none;
    if (a == x->none)
        return x->all;
    if (p->op == RE_NOT)
        return p->a;
    return make(x, (struct re_node){ .op = RE_NOT, .nullable = !p->nullable, .a = a }, NULL);
}

re_id cb_re_repeat(struct re *x, re_id a, int min, int max)
{
    const struct re_node *p = at(x, a);

    if (x->failed)
        return x->none;
    if (max == 0 || a == x->empty || (a == x->none && !min))
        return x->empty;
    if (a == x->none || (min == 1 && max == 1))
        return a;
    if (p->op == RE_REPEAT && p->min == 0 && p->max < 0)
        return a;
    if (p->nullable && !p->special)
        min = 0;
    return make(x,
                (struct re_node){ .op = RE_REPEAT,
                                  .nullable = min == 0 || p->nullable,
                                  .special = p->special,
                                  .a = a,
                                  .min = min,
                                  .max = max },
                NULL);
}

re_id cb_re_look(struct re *x, re_id a, int negative)
{
    return make(
        x, (struct re_node){ .op = RE_LOOK, .nullable = 1, .special = 1, .a = a, .n = negative },
        NULL);
}

re_id cb_re_mark(struct re *x, enum re_op op)
{
    return make(x, (struct re_node){ .op = (uint8_t)op, .nullable = 1, .special = 1 }, NULL);
}

re_id cb_re_text(struct re *x, const char *s, size_t n)
{
    re_id *one = cb_calloc(n + 1, sizeof *one), id = x->empty;
    size_t k = 0;

    if (!one)
        return fail(x, CB_ENOMEM);
    for (size_t i = 0; i < n && !x->failed; k++) {
        uint32_t c;
        const int len = cb_read_char(s + i, n - i, &c);
        struct char_range r = { c, c };
        one[k] = cb_re_chars(x, &r, 1, 0);
        i += len ? (size_t)len : 1;
    }
    while (k-- > 0)
        id = cb_re_cat(x, one[k], id);
    free(one);
    return id;
}

/* ---- marks and looks ---- */

enum at_start { NOT_THERE, MAYBE, THERE };

static int anchored(struct re *x, re_id a, re_id then, enum at_start *start, int depth, re_id *out);

static int unsupported(const char *what) /* cb_regex() puts the name in front */
{
    return cb_fail(CB_EUNSUPPORTED, "%s", what);
}

static int anchored_list(struct re *x, re_id a, re_id then, enum at_start *start, int depth,
                         re_id *out)
{
    const struct re_node p = *at(x, a);
    re_id *l = cb_calloc((size_t)p.n, sizeof *l);
    enum at_start end = NOT_THERE, one;
    int rc = l ? CB_OK : CB_ENOMEM, differ = 0;

    for (int32_t i = 0; !rc && i < p.n; i++) {
        one = *start;
        rc = anchored(x, x->arg[p.a + i], then, &one, depth + 1, &l[i]);
        differ |= i && one != end;
        end = one;
    }
    *start = differ ? MAYBE : end;
    if (!rc)
        *out = cb_re_alt(x, l, (size_t)p.n);
    free(l);
    return rc;
}

static int anchored_repeat(struct re *x, re_id a, re_id then, enum at_start *start, int depth,
                           re_id *out)
{
    const struct re_node p = *at(x, a);
    re_id both[2];

    if (p.max < 0 || p.max > 8)
        return unsupported("a look-ahead, ^ or $ within a repetition is not supported");
    *out = then;
    for (int i = p.max; i-- > 0;) {
        enum at_start here = i ? MAYBE : *start;
        TRY(anchored(x, p.a, *out, &here, depth + 1, &both[0]));
        both[1] = then;
        *out = i < p.min ? both[0] : cb_re_alt(x, both, 2);
    }
    *start = *start == NOT_THERE ? NOT_THERE : MAYBE;
    return CB_OK;
}

/* The members of a sequence from the last one on, since each needs what follows it */
static int anchored_cat(struct re *x, re_id a, re_id then, enum at_start *start, int depth,
                        re_id *out)
{
    struct {
        re_id id;
        enum at_start start;
    } *member = NULL;
    size_t n = 0, cap = 0;
    int rc = CB_OK;

    for (int last = 0; !rc && !last; n++) {
        const struct re_node *p = at(x, a);
        rc = cb_budget_grow(x->budget, (void **)&member, &cap, n + 1, sizeof *member);
        if (rc)
            break;
        last = p->op != RE_CAT;
        member[n].id = last ? a : p->a;
        member[n].start = *start;
        a = last ? a : p->n;
        p = at(x, member[n].id);
        if (p->op < RE_LOOK && *start != NOT_THERE)
            *start = p->nullable ? MAYBE : NOT_THERE;
    }
    for (*out = then; !rc && n-- > 0;) {
        enum at_start here = member[n].start;
        rc = anchored(x, member[n].id, *out, &here, depth + 1, out);
    }
    cb_budget_bytes(x->budget, cap * sizeof *member, 0);
    free(member);
    return rc;
}

/* Texts of a, after which `then` follows, without marks. *start: whether they begin the text;
 * afterwards whether `then` does */
static int anchored(struct re *x, re_id a, re_id then, enum at_start *start, int depth, re_id *out)
{
    const struct re_node p = *at(x, a);
    enum at_start here = *start;
    re_id look;

    if (depth > 2 * GRAMMAR_MAX_DEPTH)
        return unsupported("groups are nested too deeply");
    TRY(cb_budget_steps(x->budget, 1));
    if (!p.special) {
        *out = cb_re_cat(x, a, then);
        *start = here == NOT_THERE || p.op == RE_EMPTY ? here : p.nullable ? MAYBE : NOT_THERE;
        return x->failed;
    }
    switch (p.op) {
    case RE_START:
        if (here == MAYBE)
            return unsupported("^ after an expression that may be empty is not supported");
        *out = here == THERE ? then : x->none;
        return CB_OK;
    case RE_END:
        *out = at(x, then)->nullable ? x->empty : x->none;
        return CB_OK;
    case RE_LOOK:
        TRY(anchored(x, p.a, x->all, &here, depth + 1, &look));
        *out = cb_re_and2(x, then, p.n ? cb_re_not(x, look) : look);
        return x->failed;
    case RE_ALT:
        return anchored_list(x, a, then, start, depth, out);
    case RE_REPEAT:
        return anchored_repeat(x, a, then, start, depth, out);
    default:
        return anchored_cat(x, a, then, start, depth, out);
    }
}

int cb_re_anchored(struct re *x, re_id a, int is_part, re_id *out)
{
    enum at_start start = THERE;
    re_id both[2];

    TRY(anchored(x, a, is_part ? x->all : x->empty, &start, 0, &both[0]));
    *out = both[0];
    if (!is_part)
        return x->failed;
    start = NOT_THERE;
    TRY(anchored(x, a, x->all, &start, 0, &both[1]));
    if (!at(x, a)->special || both[0] == both[1]) {
        *out = cb_re_cat(x, x->all, both[1]);
        return x->failed;
    }
    both[1] = cb_re_cat(x, x->any, cb_re_cat(x, x->all, both[1]));
    *out = cb_re_alt(x, both, 2);
    return x->failed;
}
