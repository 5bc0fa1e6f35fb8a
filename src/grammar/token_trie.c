/* SPDX-License-Identifier: MIT */
/* token_trie.c - makes the trie from the sorted bytes of all tokens. */
#include "token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

const uint8_t cb_trie_level[TRIE_LEVELS] = { 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 254 };

struct spelled {
    const char *s;
    int n, chars;
    int32_t id;
};

struct words {
    struct spelled *word; /* [n] sorted */
    int n;
    char *bytes;
};

static int in_order(const void *a, const void *b)
{
    const struct spelled *x = a, *y = b;
    const int c = memcmp(x->s, y->s, (size_t)(x->n < y->n ? x->n : y->n));

    if (c)
        return c;
    return x->n != y->n ? x->n - y->n : x->id - y->id;
}

/* The characters of s[size], at most 254, if it is plain; else TRIE_MIXED */
static int plain_chars(const char *s, int size)
{
    int n = 0;

    for (int i = 0; i < size; n++) {
        const uint8_t c = (uint8_t)s[i];
        const int len = cb_utf8_len(s + i, (size_t)(size - i));
        if (!len || c < 0x20 || c == '"' || c == '\\' || c == 0x7F)
            return TRIE_MIXED;
        i += len;
    }
    return n < 254 ? n : 254;
}

/* Special tokens have no bytes, and no place in the trie. */
static int spell(const struct tok *tok, int n_vocab, struct words *w)
{
    size_t total = 0, at = 0;

    for (int32_t i = 0; i < n_vocab; i++)
        total += (size_t)cb_tok_piece(tok, i, 0, NULL, 0);
    w->bytes = cb_calloc(total + 1, 1);
    w->word = cb_calloc((size_t)n_vocab + 1, sizeof *w->word);
    if (!w->bytes || !w->word)
        return CB_ENOMEM;
    for (int32_t i = 0; i < n_vocab; i++) {
        const int n = cb_tok_piece(tok, i, 0, w->bytes + at, (int)(total - at));
        if (n > 0 && !cb_tok_is_end(tok, i))
            w->word[w->n++] =
                (struct spelled){ w->bytes + at, n, plain_chars(w->bytes + at, n), i };
        at += (size_t)n;
    }
    qsort(w->word, (size_t)w->n, sizeof *w->word, in_order);
    return CB_OK;
}

static int common(const struct spelled *a, const struct spelled *b)
{
    int n = 0;

    while (n < a->n && n < b->n && a->s[n] == b->s[n])
        n++;
    return n;
}

static uint32_t count_nodes(const struct words *w)
{
    uint32_t n = 0;

    for (int i = 0; i < w->n; i++)
        n += (uint32_t)(w->word[i].n - (i ? common(&w->word[i - 1], &w->word[i]) : 0));
    return n;
}

/* path: the nodes from the root to the last word's */
static void add_word(struct trie *t, const struct spelled *w, int shared, uint32_t at,
                     uint32_t *path)
{
    for (int d = shared; d < w->n; d++) {
        path[d] = t->n_node;
        t->node[t->n_node++] =
            (struct trie_node){ .token = at, .depth = (uint16_t)(d + 1), .byte = (uint8_t)w->s[d] };
    }
    for (int d = 0; d < w->n; d++)
        if (t->node[path[d]].chars < w->chars)
            t->node[path[d]].chars = (uint8_t)w->chars;
}

static int build(struct trie *t, const struct words *w, uint32_t *path)
{
    t->node = cb_calloc((size_t)count_nodes(w) + 1, sizeof *t->node);
    t->id = cb_calloc((size_t)w->n + 1, sizeof *t->id);
    if (!t->node || !t->id)
        return CB_ENOMEM;
    for (int i = 0; i < w->n; i++) {
        const int shared = i ? common(&w->word[i - 1], &w->word[i]) : 0;
        for (int d = shared; i && d < w->word[i - 1].n; d++)
            t->node[path[d]].skip = t->n_node;
        add_word(t, &w->word[i], shared, (uint32_t)i, path);
        t->id[i] = w->word[i].id;
    }
    for (int d = 0; w->n && d < w->word[w->n - 1].n; d++)
        t->node[path[d]].skip = t->n_node;
    t->node[t->n_node].token = (uint32_t)w->n;
    return CB_OK;
}

static void fill_levels(struct token_trie *t, const struct words *w)
{
    for (int i = 0; i < w->n; i++) {
        const size_t word = (size_t)(w->word[i].id / 64);
        for (int k = 0; k < TRIE_LEVELS; k++)
            if (w->word[i].chars <= cb_trie_level[k])
                t->plain[(size_t)k * (size_t)t->n_words + word] |= 1ull << (w->word[i].id % 64);
    }
}

static int fill(struct token_trie *t, struct words *w)
{
    uint32_t *path;
    int n = 0, rc;

    for (int i = 0; i < w->n; i++)
        t->max_depth = w->word[i].n > t->max_depth ? w->word[i].n : t->max_depth;
    if (t->max_depth > UINT16_MAX)
        return cb_fail(CB_EUNSUPPORTED, "grammar: the vocabulary has a token of %d bytes",
                       t->max_depth);
    t->n_words = (t->n_vocab + 63) / 64;
    t->plain = cb_calloc((size_t)TRIE_LEVELS * (size_t)t->n_words, sizeof *t->plain);
    path = cb_calloc((size_t)t->max_depth + 1, sizeof *path);
    rc = t->plain && path ? build(&t->all, w, path) : CB_ENOMEM;
    if (!rc) {
        fill_levels(t, w);
        for (int i = 0; i < w->n; i++)
            if (w->word[i].chars > cb_trie_level[TRIE_LEVELS - 2])
                w->word[n++] = w->word[i];
        w->n = n;
        rc = build(&t->rest, w, path);
    }
    free(path);
    return rc;
}

int cb_token_trie_new(const struct tok *tok, int n_vocab, struct token_trie **out)
{
    struct token_trie *t = cb_calloc(1, sizeof *t);
    struct words w = { 0 };
    int rc = CB_ENOMEM;

    *out = NULL;
    if (t) {
        t->tok = tok;
        t->n_vocab = n_vocab;
        rc = spell(tok, n_vocab, &w);
    }
    if (!rc)
        rc = fill(t, &w);
    free(w.word);
    free(w.bytes);
    if (rc)
        cb_token_trie_free(t);
    else
        *out = t;
    return rc;
}

void cb_token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    free(t->all.node);
    free(t->all.id);
    free(t->rest.node);
    free(t->rest.id);
    free(t->plain);
    free(t);
}
