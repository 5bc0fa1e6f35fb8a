/* SPDX-License-Identifier: MIT */
/* tok_pairs.c - the pairs of tokens that merge, in the order of tokenizer.ggml.merges. */
#include <stdlib.h>
#include <string.h>

#include "tok_impl.h"

struct tok_pair { /* two tokens that merge; rank -1 = a free place */
    int32_t a, b;
    int32_t rank, id;
};

/* The entry of the pair (a, c), or the free entry where it belongs */
static struct tok_pair *find_pair(const struct tok *t, const struct tok_pairs *p, int32_t a,
                                  int32_t c)
{
    uint32_t i = (uint32_t)cb_siphash_word(&t->key, (uint64_t)(uint32_t)a << 32 | (uint32_t)c);

    for (i &= p->mask; p->pair[i].rank >= 0 && (p->pair[i].a != a || p->pair[i].b != c);)
        i = (i + 1) & p->mask;
    return &p->pair[i];
}

static int bad_merge(uint64_t i, struct gguf_str s, const char *why)
{
    return cb_fail(CB_EFORMAT, "tokenizer.ggml.merges: merge %llu, \"%.*s\", %s",
                   (unsigned long long)i, s.n < 80 ? (int)s.n : 80, s.s, why);
}

static int add_merge(struct tok *t, struct tok_pairs *to, uint64_t i, struct gguf_str s)
{
    char joined[TOK_MAX_PIECE];
    const char *gap = s.n > 2 ? memchr(s.s + 1, ' ', s.n - 2) : NULL;
    struct tok_pair p = { .rank = (int32_t)i };
    size_t n;

    if (!gap)
        return bad_merge(i, s, "is not two tokens with a blank between");
    n = (size_t)(gap - s.s);
    if (s.n - 1 > sizeof joined)
        return bad_merge(i, s, "is too long");
    memcpy(joined, s.s, n);
    memcpy(joined + n, gap + 1, s.n - n - 1);
    p.a = cb_tok_lookup(t, s.s, n);
    p.b = cb_tok_lookup(t, gap + 1, s.n - n - 1);
    p.id = cb_tok_lookup(t, joined, s.n - 1);
    if (p.a < 0 || p.b < 0)
        return bad_merge(i, s, "names a token that is not in the vocabulary");
    if (p.id < 0)
        return bad_merge(i, s, "makes a token that is not in the vocabulary");
    *find_pair(t, to, p.a, p.b) = p; /* of equal pairs the last counts, as in the original */
    return CB_OK;
}

int cb_tok_pairs_read(struct tok *t, const struct gguf *g, struct tok_pairs *p)
{
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_kv *kv = NULL;
    const int got = cb_gguf_array(g, key, GGUF_STRING, &kv);
    uint32_t n = 64;

    TRY(got);
    if (!got)
        return cb_fail(CB_EFORMAT, "%s: the file has no such key", key);
    if (kv->n > TOK_MAX_VOCAB)
        return cb_fail(CB_EFORMAT, "%s: %llu merges, not 0 to %d", key, (unsigned long long)kv->n,
                       TOK_MAX_VOCAB);
    while (n < 2 * kv->n)
        n *= 2;
    p->pair = cb_calloc(n, sizeof *p->pair);
    if (!p->pair)
        return CB_ENOMEM;
    p->mask = n - 1;
    for (uint32_t i = 0; i < n; i++)
        p->pair[i].rank = -1;
    for (uint64_t i = 0; i < kv->n; i++)
        TRY(add_merge(t, p, i, cb_gguf_array_str(kv, i)));
    return CB_OK;
}

int cb_tok_pairs_find(const struct tok *t, const struct tok_pairs *p, int32_t a, int32_t b,
                      uint32_t *rank, int32_t *id)
{
    const struct tok_pair *found;

    if (a < 0 || b < 0)
        return 0;
    found = find_pair(t, p, a, b);
    if (found->rank < 0)
        return 0;
    *rank = (uint32_t)found->rank;
    *id = found->id;
    return 1;
}

void cb_tok_pairs_close(struct tok_pairs *p)
{
    free(p->pair);
}
