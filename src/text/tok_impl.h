/* SPDX-License-Identifier: MIT */
/* tok_impl.h - what the parts of the tokenizer share; only tok*.c include it. */
#ifndef TOK_IMPL_H
#define TOK_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/err.h"
#include "base/siphash.h"
#include "gguf/gguf.h"
#include "tok.h"

enum tok_type { TT_NORMAL = 1, TT_UNKNOWN, TT_CONTROL, TT_USER, TT_UNUSED, TT_BYTE };

enum {
    TOK_MAX_VOCAB = 1 << 24,
    TOK_MAX_PIECE = 4096,         /* bytes: bounds the look-ahead for special tokens */
    TOK_MAX_TEXT = INT32_MAX / 4, /* bytes: SentencePiece writes a space as 3 bytes */
    TOK_CACHE_FROM = 1024         /* bytes of text from which a cache of words pays */
};

struct piece {
    const char *s; /* in the file's mapping */
    uint32_t n;
    uint32_t type;
};

struct vocab_slot {
    uint32_t hash;
    int32_t id; /* -1 = free */
};

/* One row for each tokenizer.ggml.model */
struct tok_work;
struct tok_kind {
    const char *model;
    int (*open)(struct tok *t, const struct gguf *g);
    void (*close)(struct tok *t);
    /* changes text[*len] to the form in which special tokens are looked up, and w->bound with it;
     * NULL = no change */
    int (*prepare)(struct tok_work *w, const char **text, size_t *len);
    /* text[len] without special tokens, len > 0; appends ids to w */
    int (*encode)(struct tok_work *w, const char *text, size_t len);
    /* writes an ordinary token's bytes to buf, at most cap of them; returns how many it has */
    int (*piece)(const struct tok *t, int32_t id, char *buf, int cap);
    void (*done)(struct tok_work *w); /* frees w->own; NULL = nothing to free */
};

extern const struct tok_kind cb_tok_bpe, cb_tok_spm, cb_tok_gemma4;

struct tok {
    const struct tok_kind *kind;
    const char
        *pre; /* while it opens: the way to split words that was asked for; NULL = the file's */
    struct piece *piece; /* [n_vocab] */
    int n_vocab;
    uint32_t max_len;        /* bytes of the longest piece */
    struct vocab_slot *slot; /* [slot_mask + 1], open addressing */
    uint32_t slot_mask;
    struct hash_key key; /* of the tables whose keys the file chooses */
    int32_t *special; /* [n_special] control, unknown and user-defined tokens, sorted by spelling */
    int n_special;
    uint8_t starts[256]; /* by first byte; bit 0: some user-defined token, bit 1: some other special
                            token */
    int32_t bos, eos, unk;
    int add_bos, add_eos;
    int space_prefix;
    int32_t end[16];
    int n_end;
    void *own; /* of the kind */
};

/* ---- the working memory of one encode call ---- */

struct sym { /* one symbol of a word that is being merged */
    int32_t prev, next;
    int32_t id;       /* -1 = no such token */
    uint32_t at, len; /* bytes of the word; len 0 = merged away */
};

struct cand {      /* a pair that could merge */
    uint32_t rank; /* the lowest rank merges first, then the leftmost pair */
    int32_t left;
    int32_t id;   /* of the result */
    uint32_t len; /* bytes of the result; a mismatch shows that a part has merged since */
};

/* Candidates of one rank in the order in which they lie in the word, so none needs the heap. A long
 * run of the same characters makes millions of them. */
struct lane {
    uint32_t rank;
    struct cand *c; /* [from..n) wait */
    size_t from, n, cap;
};
enum { TOK_LANES = 16 };

struct cached_word {
    char s[22];
    uint8_t len, n;
    int32_t at; /* ids[at..at+n) of this call */
};

struct tok_work {
    const struct tok *t;
    int32_t *ids;
    size_t n, cap;
    struct sym *sym;
    size_t cap_sym;
    struct cand *heap;
    size_t n_heap, cap_heap;
    struct lane lane[TOK_LANES];
    struct lane *first;        /* the lane of the lowest rank; NULL: all are empty */
    int lanes;                 /* 1: the word is long, lanes are used */
    struct cached_word *cache; /* NULL for short texts */
    void *own;                 /* of the kind */
    size_t *bound;             /* [n_bound] plain stretches: start, end, start, end, ... */
    size_t n_bound;
    int32_t *mark; /* [n_mark] user-defined tokens outside of plain stretches */
    size_t n_mark, cap_mark;
    char *prepared; /* of prepare() */
    char *buf;      /* normalised text */
    size_t cap_buf;
    int32_t *cp; /* code points, while normalising */
    size_t cap_cp;
};

int cb_tok_push(struct tok_work *w, int32_t id);

uint32_t cb_tok_hash(const struct tok *t, const char *s, size_t n);
int32_t cb_tok_lookup(const struct tok *t, const char *s, size_t n); /* -1 = none */

/* ---- merging, tok_merge.c ---- */

/* May a and b merge? 1 and *rank, *id, or 0. */
typedef int (*tok_pair_fn)(const struct tok *t, const char *word, const struct sym *a,
                           const struct sym *b, uint32_t *rank, int32_t *id);

/* cb_tok_sym() sets w->sym[n] in order; cb_tok_merge() merges them in place. The list starts at
 * sym[0]. */
int cb_tok_syms(struct tok_work *w, size_t n); /* room for n symbols */
void cb_tok_sym(struct tok_work *w, size_t i, int32_t id, size_t at, size_t len);
int cb_tok_merge(struct tok_work *w, const char *word, size_t n, tok_pair_fn pair);

int cb_tok_cache_open(struct tok_work *w);
/* 1: the word occurred before in this call, and its ids are appended; 0: it did not; negative:
 * failed. */
int cb_tok_cached(struct tok_work *w, const char *word, size_t len);
/* The word's ids are w->ids[from..n). */
void cb_tok_remember(struct tok_work *w, const char *word, size_t len, size_t from);

/* ---- pairs that merge, tok_pairs.c ---- */

struct tok_pairs {
    struct tok_pair *pair; /* [mask + 1], open addressing */
    uint32_t mask;
};

/* tokenizer.ggml.merges; the caller closes p, after a failure as well */
int cb_tok_pairs_read(struct tok *t, const struct gguf *g, struct tok_pairs *p);
/* May tokens a and b merge? 1 and *rank, *id, or 0. */
int cb_tok_pairs_find(const struct tok *t, const struct tok_pairs *p, int32_t a, int32_t b,
                      uint32_t *rank, int32_t *id);
void cb_tok_pairs_close(struct tok_pairs *p);

/* ---- normalisation, tok_nfc.c ---- */

/* Valid UTF-8 text[len] -> its NFC form in w->buf, *n bytes. Linear in len. */
int cb_tok_nfc(struct tok_work *w, const char *text, size_t len, size_t *n);

#endif
