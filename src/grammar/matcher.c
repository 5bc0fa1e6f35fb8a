/* SPDX-License-Identifier: MIT */
/* matcher.c - a pushdown automaton over bytes that follows all ways to read a text at once.
 *
 * A way is an instruction and a stack of places to return to. Stacks share what they have in
 * common: a stack node is the list of all (instruction, node) at which a rule's callers continue,
 * so ways whose rules began at the same byte are followed once (as in Earley's algorithm). A state
 * is the list of (instruction, node) that wait for a byte. Lists are numbered by content, and the
 * step from a state by a class of bytes is remembered, so a state that was seen before costs a
 * look-up. There is no left recursion, so a new node only refers to older ones. */
#include "matcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"

enum {
    MOST_WAYS = 1 << 16,  /* of one list */
    MOST_PAIRS = 1 << 23, /* of all lists */
    MOST_STEPS = 1 << 25,
    MOST_WORK = 1 << 22, /* ways looked at between two calls of cb_matcher_go() */
    COLLECT_FROM = 1 << 19,
    UNKNOWN = -1
};

struct pair {
    int32_t pc, node;
};

struct list {
    int32_t from, n; /* pair[from..from + n), ascending */
    int32_t row;     /* of steps, if it is a state; -1 = none yet */
};

struct heap {
    int32_t *rank;
    size_t n, cap;
};

/* A place to return to, waiting until its rule's turn comes */
struct pending {
    struct pair pair;
    int32_t next; /* of the same rule, -1 = none */
};

struct pairs {
    struct pair *p;
    size_t n, cap;
};

struct matcher {
    const struct program *prog;
    int32_t state;
    struct pair *pair; /* of all lists */
    size_t n_pair, cap_pair;
    struct list *list;
    size_t n_list, cap_list;
    int32_t *step; /* [n_row][n_class] the state that follows, or UNKNOWN */
    size_t n_row, cap_step;
    struct ids lists;
    size_t collect_at; /* pairs from which unused lists are dropped */
    size_t work;
    /* work space of one step */
    struct pairs todo, found, node;
    struct ids seen; /* of `reached` */
    struct pairs reached;
    struct pending *pending;
    size_t n_pending, cap_pending;
    int32_t *first; /* [n_rule] pending of the rule, -1 = none */
    struct heap turn;
};

static int push(struct pairs *l, struct pair x)
{
    TRY(cb_grow(&l->p, &l->cap, l->n + 1, sizeof *l->p));
    l->p[l->n++] = x;
    return CB_OK;
}

/* ---- lists by content ---- */

struct wanted_list {
    const struct matcher *m;
    const struct pairs *l;
};

static int same_list(const void *ctx, int32_t id)
{
    const struct wanted_list *w = ctx;
    const struct list *x = &w->m->list[id];

    return (size_t)x->n == w->l->n &&
           !(x->n && memcmp(&w->m->pair[x->from], w->l->p, w->l->n * sizeof *w->l->p));
}

static int ascending(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    if (x->pc != y->pc)
        return x->pc < y->pc ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void tidy(struct pairs *l)
{
    size_t n = 0;

    if (l->n > 1)
        qsort(l->p, l->n, sizeof *l->p, ascending);
    for (size_t i = 0; i < l->n; i++)
        if (!n || ascending(&l->p[n - 1], &l->p[i]))
            l->p[n++] = l->p[i];
    l->n = n;
}

static int too_much(void)
{
    return cb_fail(CB_EUNSUPPORTED, "grammar: the text can be read in too many ways");
}

/* The number of a list, which is put in order */
static int number(struct matcher *m, struct pairs *l)
{
    const struct wanted_list w = { m, l };
    const int32_t fresh = (int32_t)m->n_list;
    uint64_t hash;
    int32_t id;

    tidy(l);
    if (l->n > MOST_WAYS || m->n_pair + l->n > MOST_PAIRS || m->n_list > MOST_PAIRS)
        return too_much();
    TRY(cb_grow(&m->list, &m->cap_list, m->n_list + 1, sizeof *m->list));
    TRY(cb_grow(&m->pair, &m->cap_pair, m->n_pair + l->n, sizeof *m->pair));
    TRY(push(l, (struct pair){ 0, 0 })); /* so that an empty list has a place, too */
    l->n--;
    hash = cb_siphash(&m->lists.key, l->p, l->n * sizeof *l->p);
    TRY(id = cb_ids_find(&m->lists, hash, same_list, &w, fresh));
    if (id != fresh)
        return id;
    m->list[m->n_list++] = (struct list){ (int32_t)m->n_pair, (int32_t)l->n, -1 };
    if (l->n)
        memcpy(m->pair + m->n_pair, l->p, l->n * sizeof *l->p);
    m->n_pair += l->n;
    return id;
}

/* ---- the ways after a byte ---- */

static int same_pair(const void *ctx, int32_t id)
{
    const struct pairs *l = ctx;
    return !ascending(&l->p[id], &l->p[l->n]);
}

/* Has a way been reached in this step? It has now. Negative: CB_ENOMEM */
static int reached(struct matcher *m, struct pair x)
{
    struct pairs *l = &m->reached;
    const uint64_t word = (uint64_t)(uint32_t)x.pc << 32 | (uint32_t)x.node;
    int32_t id;

    TRY(cb_grow(&l->p, &l->cap, l->n + 1, sizeof *l->p));
    l->p[l->n] = x;
    TRY(id = cb_ids_find(&m->seen, cb_siphash_word(&m->seen.key, word), same_pair, l,
                         (int32_t)l->n));
    if ((size_t)id < l->n)
        return 1;
    l->n++;
    return 0;
}

static int heap_add(struct heap *h, int32_t rank)
{
    size_t i;

    TRY(cb_grow(&h->rank, &h->cap, h->n + 1, sizeof *h->rank));
    for (i = h->n++; i > 0 && h->rank[(i - 1) / 2] > rank; i = (i - 1) / 2)
        h->rank[i] = h->rank[(i - 1) / 2];
    h->rank[i] = rank;
    return CB_OK;
}

static int32_t heap_take(struct heap *h)
{
    const int32_t least = h->rank[0], x = h->rank[--h->n];
    size_t i = 0;

    for (size_t c; (c = 2 * i + 1) < h->n; i = c) {
        c += c + 1 < h->n && h->rank[c + 1] < h->rank[c];
        if (x <= h->rank[c])
            break;
        h->rank[i] = h->rank[c];
    }
    h->rank[i] = x;
    return least;
}

static int wait_for(struct matcher *m, int32_t rule, struct pair x)
{
    TRY(cb_grow(&m->pending, &m->cap_pending, m->n_pending + 1, sizeof *m->pending));
    if (m->first[rule] < 0)
        TRY(heap_add(&m->turn, m->prog->rule[rule].rank));
    m->pending[m->n_pending] = (struct pending){ x, m->first[rule] };
    m->first[rule] = (int32_t)m->n_pending++;
    return ++m->work > MOST_WORK ? too_much() : CB_OK;
}

/* Rule x->arg begins here, called by a rule that returns to `node`. Where nothing follows the call,
 * the rule returns to its caller's callers, so that lists do not deepen the stack. */
static int call(struct matcher *m, const struct inst *x, int32_t node)
{
    if (m->prog->code[x->next].op != OP_RET)
        return wait_for(m, x->arg, (struct pair){ x->next, node });
    for (int32_t i = 0; i < m->list[node].n; i++)
        TRY(wait_for(m, x->arg, m->pair[m->list[node].from + i]));
    return CB_OK;
}

static int follow(struct matcher *m, struct pair at)
{
    const struct inst *x = &m->prog->code[at.pc];
    struct list callers;

    switch (x->op) {
    case OP_END:
    case OP_SET:
        return push(&m->found, at);
    case OP_JUMP:
        return push(&m->todo, (struct pair){ x->next, at.node });
    case OP_SPLIT:
        TRY(push(&m->todo, (struct pair){ x->arg, at.node }));
        return push(&m->todo, (struct pair){ x->next, at.node });
    case OP_CALL:
        TRY(call(m, x, at.node));
        if (!m->prog->rule[x->arg].nullable)
            return CB_OK;
        return push(&m->todo, (struct pair){ x->next, at.node });
    case OP_RET:
        callers = m->list[at.node];
        for (int32_t i = 0; i < callers.n; i++)
            TRY(push(&m->todo, m->pair[callers.from + i]));
        return CB_OK;
    case OP_FAIL:
        break;
    }
    return CB_OK;
}

/* Rules that begin at this byte: their callers are known by now, since those have lower ranks. */
static int begin_rules(struct matcher *m)
{
    const struct program *p = m->prog;

    while (m->turn.n > 0) {
        const int32_t id = p->by_rank[heap_take(&m->turn)];
        const struct program_rule *rule = &p->rule[id];
        int32_t node;
        m->node.n = 0;
        for (int32_t i = m->first[id]; i >= 0; i = m->pending[i].next)
            TRY(push(&m->node, m->pending[i].pair));
        m->first[id] = -1;
        TRY(node = number(m, &m->node));
        for (int32_t i = rule->first; i < rule->last; i++) {
            const struct inst *x = &p->code[p->first_pc[i]];
            if (x->op == OP_CALL)
                TRY(call(m, x, node));
            else
                TRY(push(&m->found, (struct pair){ p->first_pc[i], node }));
        }
    }
    return CB_OK;
}

/* All ways from those in `todo` to the next byte -> the number of their state */
static int close_state(struct matcher *m)
{
    int rc = CB_OK;

    while (!rc && m->todo.n > 0) {
        const struct pair at = m->todo.p[--m->todo.n];
        rc = ++m->work > MOST_WORK ? too_much() : reached(m, at);
        rc = rc == 0 ? follow(m, at) : rc == 1 ? CB_OK : rc;
    }
    if (!rc)
        rc = begin_rules(m);
    if (!rc)
        rc = number(m, &m->found);
    for (; rc < 0 && m->turn.n > 0; m->turn.n--)
        m->first[m->prog->by_rank[m->turn.rank[m->turn.n - 1]]] = -1;
    m->todo.n = m->found.n = m->n_pending = m->reached.n = 0;
    if (m->seen.n)
        cb_ids_clear(&m->seen);
    return rc;
}

static int take_byte(struct matcher *m, int32_t state, uint8_t byte)
{
    const struct program *p = m->prog;
    const struct list l = m->list[state];

    for (int32_t i = 0; i < l.n; i++) {
        const struct pair at = m->pair[l.from + i];
        const struct inst *x = &p->code[at.pc];
        if (x->op == OP_SET && cb_set_has(&p->set[x->arg], byte))
            TRY(push(&m->todo, (struct pair){ x->next, at.node }));
    }
    return close_state(m);
}

static int new_row(struct matcher *m, int32_t state)
{
    const size_t n = (size_t)m->prog->n_class;

    if ((m->n_row + 1) * n > MOST_STEPS)
        return too_much();
    TRY(cb_grow(&m->step, &m->cap_step, (m->n_row + 1) * n, sizeof *m->step));
    for (size_t i = 0; i < n; i++)
        m->step[m->n_row * n + i] = UNKNOWN;
    m->list[state].row = (int32_t)m->n_row++;
    return CB_OK;
}

int32_t cb_matcher_next(struct matcher *m, int32_t state, uint8_t byte)
{
    const int c = m->prog->class_of[byte];
    int32_t *step, to;

    if (m->list[state].row < 0)
        TRY(new_row(m, state));
    step = &m->step[(size_t)m->list[state].row * (size_t)m->prog->n_class + (size_t)c];
    if (*step != UNKNOWN)
        return *step;
    TRY(to = take_byte(m, state, byte));
    *step = to; /* taking steps makes lists, not rows */
    return to;
}

int32_t cb_matcher_state(const struct matcher *m)
{
    return m->state;
}

int cb_matcher_may_end(const struct matcher *m, int32_t state)
{
    const struct list *l = &m->list[state];
    return l->n && m->prog->code[m->pair[l->from].pc].op == OP_END; /* it comes first */
}

/* ---- memory ---- */

/* Copies what `state` of `from` needs to m, which has the empty list alone, and goes there. A list
 * refers to lists of lower numbers only. */
static int copy_state(struct matcher *m, const struct matcher *from, int32_t state)
{
    int32_t *now =
        cb_calloc(from->n_list + 1, sizeof *now); /* 0 = not needed; later the new number */
    int rc = now ? CB_OK : CB_ENOMEM;

    if (rc)
        return rc;
    now[state] = 1;
    for (int32_t i = state; i > 0; i--)
        for (int32_t k = 0; now[i] && k < from->list[i].n; k++)
            now[from->pair[from->list[i].from + k].node] = 1;
    now[0] = MATCHER_DEAD;
    for (int32_t i = 1; !rc && i <= state; i++) {
        m->node.n = 0;
        for (int32_t k = 0; !rc && now[i] && k < from->list[i].n; k++) {
            const struct pair x = from->pair[from->list[i].from + k];
            rc = push(&m->node, (struct pair){ x.pc, now[x.node] });
        }
        if (!rc && now[i])
            rc = now[i] = number(m, &m->node);
        rc = rc < 0 ? rc : CB_OK;
    }
    if (!rc)
        m->state = now[state];
    free(now);
    return rc;
}

/* Keeps the lists that the present state needs. */
static int collect(struct matcher *m)
{
    const struct matcher old = *m;
    int rc;

    m->list = NULL;
    m->pair = NULL;
    m->n_list = m->cap_list = m->n_pair = m->cap_pair = m->n_row = 0;
    m->state = MATCHER_DEAD;
    cb_ids_clear(&m->lists);
    m->node.n = 0;
    rc = number(m, &m->node);
    if (!rc)
        rc = copy_state(m, &old, old.state);
    m->collect_at = 2 * m->n_pair > COLLECT_FROM ? 2 * m->n_pair : COLLECT_FROM;
    free(old.list);
    free(old.pair);
    return rc;
}

int cb_matcher_go(struct matcher *m, int32_t state, int *moved)
{
    m->state = state;
    m->work = 0;
    *moved = m->n_pair + m->n_list + m->n_row * (size_t)m->prog->n_class > m->collect_at;
    return *moved ? collect(m) : CB_OK;
}

static int begin(struct matcher *m)
{
    const struct program *p = m->prog;
    int32_t state;

    for (size_t i = 0; i < p->n_rule; i++)
        m->first[i] = -1;
    TRY(number(m, &m->node)); /* the empty list: MATCHER_DEAD */
    TRY(wait_for(m, p->root, (struct pair){ 0, 0 }));
    if (p->rule[p->root].nullable)
        TRY(push(&m->todo, (struct pair){ 0, 0 }));
    TRY(state = close_state(m));
    m->state = state;
    return CB_OK;
}

int cb_matcher_new(const struct program *p, struct matcher **out)
{
    struct matcher *m = cb_calloc(1, sizeof *m);
    int rc = CB_ENOMEM;

    *out = NULL;
    if (!m)
        return rc;
    m->prog = p;
    m->collect_at = COLLECT_FROM;
    cb_ids_init(&m->lists);
    cb_ids_init(&m->seen);
    m->first = cb_calloc(p->n_rule, sizeof *m->first);
    if (m->first)
        rc = begin(m);
    if (rc)
        cb_matcher_free(m);
    else
        *out = m;
    return rc;
}

int cb_matcher_fork(const struct matcher *from, struct matcher **out)
{
    int rc;

    TRY(cb_matcher_new(from->prog, out));
    rc = copy_state(*out, from, from->state);
    if (rc) {
        cb_matcher_free(*out);
        *out = NULL;
    }
    return rc;
}

void cb_matcher_free(struct matcher *m)
{
    if (!m)
        return;
    free(m->pair);
    free(m->list);
    free(m->step);
    free(m->todo.p);
    free(m->found.p);
    free(m->node.p);
    free(m->reached.p);
    free(m->pending);
    free(m->first);
    free(m->turn.rank);
    cb_ids_free(&m->lists);
    cb_ids_free(&m->seen);
    free(m);
}
