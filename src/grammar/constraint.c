/* SPDX-License-Identifier: MIT */
/* constraint.c - masks of allowed tokens: the trie of the vocabulary is walked with the matcher.
 *
 * Most states are of two kinds. Few tokens fit the first kind, and the walk ends soon. In the other
 * one, the inside of a string, nearly all fit: then tokens of plain characters come from a mask
 * that was made with the trie, after a check that the state takes any plain character that often
 * in a row, and the walk passes them over. Masks are kept by state. */
#include "constraint.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "matcher.h"

enum { MASKS = 64 };

struct constraint {
    struct matcher *m;
    const struct token_trie *t;
    int32_t *path;     /* [max_depth + 1] states along the walk */
    uint64_t *mask;    /* [MASKS][n_words] */
    int32_t of[MASKS]; /* state of each mask, -1 = free */
    int allowed[MASKS];
    int newest;
    int ended;  /* 1: a token that ends a turn was accepted */
    int failed; /* status of an accept that failed, or 0 */
    char *piece;
};

/* ---- plain characters ---- */

/* Bytes of a plain character: ranges from[i]..to[i], one byte each */
struct shape {
    uint8_t n, from[4], to[4];
};

static const struct shape shapes[] = {
    { 1, { 0x20 }, { 0x21 } },
    { 1, { 0x23 }, { 0x5B } },
    { 1, { 0x5D }, { 0x7E } },
    { 2, { 0xC2, 0x80 }, { 0xDF, 0xBF } },
    { 3, { 0xE0, 0xA0, 0x80 }, { 0xE0, 0xBF, 0xBF } },
    { 3, { 0xE1, 0x80, 0x80 }, { 0xEC, 0xBF, 0xBF } },
    { 3, { 0xED, 0x80, 0x80 }, { 0xED, 0x9F, 0xBF } },
    { 3, { 0xEE, 0x80, 0x80 }, { 0xEF, 0xBF, 0xBF } },
    { 4, { 0xF0, 0x90, 0x80, 0x80 }, { 0xF0, 0xBF, 0xBF, 0xBF } },
    { 4, { 0xF1, 0x80, 0x80, 0x80 }, { 0xF3, 0xBF, 0xBF, 0xBF } },
    { 4, { 0xF4, 0x80, 0x80, 0x80 }, { 0xF4, 0x8F, 0xBF, 0xBF } },
};

/* All characters of the shape, from its byte i on, lead from `state` to one state: *to, which is -1
 * before the first. 1: so it is, 0: no */
static int leads_to_one(struct constraint *c, const struct shape *s, int i, int32_t state,
                        int32_t *to)
{
    int32_t last = -1;

    for (int b = s->from[i]; b <= s->to[i]; b++) {
        const int32_t next = cb_matcher_next(c->m, state, (uint8_t)b);
        int rc = 1;
        if (next <= MATCHER_DEAD)
            return next;
        if (next == last)
            continue;
        if (i + 1 < s->n)
            rc = leads_to_one(c, s, i + 1, next, to);
        else if (*to < 0)
            *to = next;
        else
            rc = *to == next;
        if (rc != 1)
            return rc;
        last = next;
    }
    return 1;
}

/* How many plain characters in a row `state` takes, whatever they are; at most the last level's */
static int plain_run(struct constraint *c, int32_t state)
{
    int n = 0;

    while (n < cb_trie_level[TRIE_LEVELS - 2]) {
        int32_t to = -1;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int rc = leads_to_one(c, &shapes[i], 0, state, &to);
            if (rc != 1)
                return rc < 0 ? rc : n;
        }
        if (to == state)
            return cb_trie_level[TRIE_LEVELS - 1];
        state = to;
        n++;
    }
    return n;
}

/* ---- masks ---- */

static void allow(uint64_t *mask, int32_t id)
{
    mask[id / 64] |= 1ull << (id % 64);
}

/* Adds the tokens of t that fit, but plain ones of at most `plain` characters */
static int walk(struct constraint *c, const struct trie *t, int32_t state, int plain,
                uint64_t *mask)
{
    const struct trie_node *x = t->node;

    c->path[0] = state;
    for (uint32_t i = 0; i < t->n_node;) {
        int32_t next;
        if (x[i].chars <= plain) {
            i = x[i].skip;
            continue;
        }
        next = cb_matcher_next(c->m, c->path[x[i].depth - 1], x[i].byte);
        if (next <= MATCHER_DEAD) {
            TRY(next);
            i = x[i].skip;
            continue;
        }
        c->path[x[i].depth] = next;
        for (uint32_t k = x[i].token; k < x[i + 1].token; k++)
            allow(mask, t->id[k]);
        i++;
    }
    return CB_OK;
}

static int count(const struct token_trie *t, const uint64_t *mask)
{
    int n = 0;

    for (int i = 0; i < t->n_words; i++)
        n += __builtin_popcountll(mask[i]);
    return n;
}

static int make(struct constraint *c, int32_t state, uint64_t *mask)
{
    const struct token_trie *t = c->t;
    const size_t bytes = (size_t)t->n_words * sizeof *mask;
    const int32_t *end;
    int level = -1, run = 0;

    memset(mask, 0, bytes);
    if (!c->ended)
        TRY(run = plain_run(c, state));
    while (level + 1 < TRIE_LEVELS && cb_trie_level[level + 1] <= run)
        level++;
    if (level >= 0)
        memcpy(mask, t->plain + (size_t)level * (size_t)t->n_words, bytes);
    if (!c->ended)
        TRY(walk(c, level >= TRIE_LEVELS - 2 ? &t->rest : &t->all, state,
                 level >= 0 ? cb_trie_level[level] : 0, mask));
    if (c->ended || cb_matcher_may_end(c->m, state))
        for (int n = cb_tok_ends(t->tok, &end); n-- > 0;)
            allow(mask, end[n]);
    return count(t, mask);
}

static int has_failed(const struct constraint *c)
{
    return c->failed == CB_EARG
               ? cb_fail(CB_EARG, "grammar: a token was accepted that it does not allow here")
               : cb_fail(c->failed, "grammar: the text so far could not be followed: %s",
                         cb_status_text(c->failed));
}

int cb_constraint_mask(struct constraint *c, const uint64_t **mask)
{
    const int32_t state = cb_matcher_state(c->m);
    int i, n;

    if (c->failed)
        return has_failed(c);
    for (i = 0; i < MASKS && c->of[i] != state; i++)
        ;
    if (i == MASKS) {
        i = c->newest = (c->newest + 1) % MASKS;
        c->of[i] = -1;
        TRY(n = make(c, state, c->mask + (size_t)i * (size_t)c->t->n_words));
        c->of[i] = state;
        c->allowed[i] = n;
    }
    *mask = c->mask + (size_t)i * (size_t)c->t->n_words;
    return c->allowed[i] ? c->allowed[i]
                         : cb_fail(CB_EUNSUPPORTED, "grammar: the vocabulary has no token with "
                                                    "which the text could continue");
}

/* ---- tokens ---- */

/* The state after token id; MATCHER_DEAD: it is not allowed */
static int32_t after(struct constraint *c, int32_t id)
{
    int32_t state = cb_matcher_state(c->m);
    const int n = cb_tok_piece(c->t->tok, id, 0, c->piece, c->t->max_depth);

    if (c->ended || n < 1 || n > c->t->max_depth)
        return MATCHER_DEAD;
    for (int i = 0; i < n && state > MATCHER_DEAD; i++)
        state = cb_matcher_next(c->m, state, (uint8_t)c->piece[i]);
    return state;
}

int cb_constraint_allows(struct constraint *c, int32_t id)
{
    int32_t state;

    if (c->failed)
        return has_failed(c);
    if (cb_tok_is_end(c->t->tok, id))
        return c->ended || cb_matcher_may_end(c->m, cb_matcher_state(c->m));
    TRY(state = after(c, id));
    return state != MATCHER_DEAD;
}

static void forget_masks(struct constraint *c)
{
    for (int i = 0; i < MASKS; i++)
        c->of[i] = -1;
}

void cb_constraint_accept(struct constraint *c, int32_t id)
{
    int32_t state;
    int moved, rc;

    if (c->failed)
        return;
    rc = cb_constraint_allows(c, id);
    if (rc != 1) {
        c->failed = rc < 0 ? rc : CB_EARG;
        return;
    }
    if (cb_tok_is_end(c->t->tok, id)) {
        c->ended = 1;
        forget_masks(c);
        return;
    }
    state = after(c, id);
    rc = cb_matcher_go(c->m, state, &moved);
    if (moved)
        forget_masks(c);
    c->failed = rc;
}

/* ---- open and close ---- */

static int with_matcher(struct constraint **out, const struct token_trie *t, struct matcher *m)
{
    struct constraint *c = cb_calloc(1, sizeof *c);

    *out = NULL;
    if (!c) {
        cb_matcher_free(m);
        return CB_ENOMEM;
    }
    c->m = m;
    c->t = t;
    c->path = cb_calloc((size_t)t->max_depth + 1, sizeof *c->path);
    c->piece = cb_calloc((size_t)t->max_depth + 1, 1);
    c->mask = cb_calloc((size_t)MASKS * (size_t)t->n_words, sizeof *c->mask);
    forget_masks(c);
    if (!c->path || !c->piece || !c->mask) {
        cb_constraint_free(c);
        return CB_ENOMEM;
    }
    *out = c;
    return CB_OK;
}

int cb_constraint_new(const struct program *p, const struct token_trie *t, struct constraint **out)
{
    struct matcher *m;

    *out = NULL;
    TRY(cb_matcher_new(p, &m));
    return with_matcher(out, t, m);
}

int cb_constraint_fork(const struct constraint *from, struct constraint **out)
{
    struct matcher *m;

    *out = NULL;
    TRY(cb_matcher_fork(from->m, &m));
    TRY(with_matcher(out, from->t, m));
    (*out)->ended = from->ended;
    (*out)->failed = from->failed;
    return CB_OK;
}

void cb_constraint_free(struct constraint *c)
{
    if (!c)
        return;
    cb_matcher_free(c->m);
    free(c->path);
    free(c->piece);
    free(c->mask);
    free(c);
}
