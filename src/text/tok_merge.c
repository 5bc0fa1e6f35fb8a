/* SPDX-License-Identifier: MIT */
/* tok_merge.c - pairs of symbols merged in order of rank: a linked list of symbols and a heap of
 * candidates, O(n log n) for a word of n symbols. Long words have lanes beside the heap, which make
 * a run of blanks O(n). */
#include <limits.h>
#include <string.h>

#include "tok_impl.h"

enum {
    CACHE_WORDS = 8192, /* a power of two */
    LONG = 1024
}; /* symbols of a word from which lanes pay */

int cb_tok_syms(struct tok_work *w, size_t n)
{
    if (n > INT32_MAX)
        return cb_fail(CB_EARG, "text: %zu symbols without a break are too many", n);
    return cb_grow(&w->sym, &w->cap_sym, n, sizeof *w->sym);
}

void cb_tok_sym(struct tok_work *w, size_t i, int32_t id, size_t at, size_t len)
{
    w->sym[i] = (struct sym){ .prev = (int32_t)i - 1,
                              .next = (int32_t)i + 1,
                              .id = id,
                              .at = (uint32_t)at,
                              .len = (uint32_t)len };
}

static int before(const struct cand *a, const struct cand *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void sift_up(struct cand *h, size_t i)
{
    const struct cand c = h[i];

    for (; i && before(&c, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = c;
}

static void sift_down(struct cand *h, size_t n)
{
    const struct cand c = h[0];
    size_t i = 0;

    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && before(&h[k + 1], &h[k]))
            k++;
        if (!before(&h[k], &c))
            break;
        h[i] = h[k];
    }
    h[i] = c;
}

static int push_heap(struct tok_work *w, const struct cand *c)
{
    TRY(cb_grow(&w->heap, &w->cap_heap, w->n_heap + 1, sizeof *w->heap));
    w->heap[w->n_heap] = *c;
    sift_up(w->heap, w->n_heap++);
    return 0;
}

static struct cand pop_heap(struct tok_work *w)
{
    const struct cand c = w->heap[0];

    w->heap[0] = w->heap[--w->n_heap];
    if (w->n_heap)
        sift_down(w->heap, w->n_heap);
    return c;
}

/* The lane that takes c as its last: that of its rank, or an empty one; NULL: none */
static struct lane *lane_for(struct tok_work *w, const struct cand *c)
{
    struct lane *empty = NULL;

    for (struct lane *l = w->lane; l < w->lane + TOK_LANES; l++) {
        if (l->from == l->n)
            empty = l;
        else if (l->rank == c->rank)
            return l->c[l->n - 1].left < c->left ? l : NULL;
    }
    if (empty)
        empty->from = empty->n = 0;
    return empty;
}

static int push(struct tok_work *w, const struct cand *c)
{
    struct lane *l = w->lanes ? lane_for(w, c) : NULL;

    if (!l)
        return push_heap(w, c);
    TRY(cb_grow(&l->c, &l->cap, l->n + 1, sizeof *l->c));
    l->c[l->n++] = *c;
    l->rank = c->rank;
    if (!w->first || c->rank < w->first->rank)
        w->first = l;
    return 0;
}

static struct cand pop_lane(struct tok_work *w)
{
    const struct cand c = w->first->c[w->first->from++];

    if (w->first->from < w->first->n)
        return c;
    w->first = NULL;
    for (struct lane *l = w->lane; l < w->lane + TOK_LANES; l++)
        if (l->from < l->n && (!w->first || l->rank < w->first->rank))
            w->first = l;
    return c;
}

/* Takes the first candidate of all; 0 = there is none. */
static int pop(struct tok_work *w, struct cand *c)
{
    if (w->first && (!w->n_heap || before(&w->first->c[w->first->from], &w->heap[0])))
        *c = pop_lane(w);
    else if (w->n_heap)
        *c = pop_heap(w);
    else
        return 0;
    return 1;
}

static int offer(struct tok_work *w, const char *word, int32_t left, tok_pair_fn pair)
{
    struct sym *a = &w->sym[left], *b;
    struct cand c = { .left = left };

    if (a->next < 0)
        return 0;
    b = &w->sym[a->next];
    if (!pair(w->t, word, a, b, &c.rank, &c.id))
        return 0;
    c.len = a->len + b->len;
    return push(w, &c);
}

static void merge(struct sym *s, const struct cand *c)
{
    struct sym *a = &s[c->left], *b = &s[a->next];

    a->id = c->id;
    a->len = c->len;
    a->next = b->next;
    b->len = 0;
    if (a->next >= 0)
        s[a->next].prev = c->left;
}

int cb_tok_merge(struct tok_work *w, const char *word, size_t n, tok_pair_fn pair)
{
    struct sym *s = w->sym;
    struct cand c;

    s[n - 1].next = -1;
    w->lanes = n >= LONG;
    for (size_t i = 0; i + 1 < n; i++)
        TRY(offer(w, word, (int32_t)i, pair));
    while (pop(w, &c)) {
        const struct sym *a = &s[c.left];
        /* stale: one of the two has merged since */
        if (!a->len || a->next < 0 || a->len + s[a->next].len != c.len)
            continue;
        merge(s, &c);
        TRY(offer(w, word, c.left, pair));
        if (a->prev >= 0)
            TRY(offer(w, word, a->prev, pair));
    }
    return 0;
}

int cb_tok_cache_open(struct tok_work *w)
{
    w->cache = cb_calloc(CACHE_WORDS, sizeof *w->cache);
    return w->cache ? CB_OK : CB_ENOMEM;
}

/* Words that share a place replace each other, so a text cannot make this slow. */
static struct cached_word *cache_at(const struct tok_work *w, const char *word, size_t len)
{
    uint64_t v[3] = { 0 }, h;

    memcpy(v, word, len);
    h = ((v[0] ^ len) * 0x9E3779B97F4A7C15u ^ v[1]) * 0xD6E8FEB86659FD93u ^ v[2];
    return &w->cache[h * 0xD6E8FEB86659FD93u >> 32 & (CACHE_WORDS - 1)];
}

int cb_tok_cached(struct tok_work *w, const char *word, size_t len)
{
    const struct cached_word *c;

    if (!w->cache || !len || len > sizeof c->s)
        return 0;
    c = cache_at(w, word, len);
    if (c->len != len || memcmp(c->s, word, len) != 0)
        return 0;
    for (int i = 0; i < c->n; i++)
        TRY(cb_tok_push(w, w->ids[c->at + i]));
    return 1;
}

void cb_tok_remember(struct tok_work *w, const char *word, size_t len, size_t from)
{
    struct cached_word *c;

    if (!w->cache || !len || len > sizeof c->s || from > INT32_MAX || w->n - from > UINT8_MAX)
        return;
    c = cache_at(w, word, len);
    memcpy(c->s, word, len);
    c->len = (uint8_t)len;
    c->n = (uint8_t)(w->n - from);
    c->at = (int32_t)from;
}
