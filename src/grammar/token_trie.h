/* SPDX-License-Identifier: MIT */
/* token_trie.h - the bytes of a vocabulary's tokens as a trie, so that a grammar looks at what
 * tokens begin with once. Made once for a model, and not changed. */
#ifndef TOKEN_TRIE_H
#define TOKEN_TRIE_H

#include "text/tok.h"

enum {
    TRIE_LEVELS = 12,
    TRIE_MIXED = 255 /* no bound: some tokens are not plain */
};

struct trie_node {
    uint32_t skip;  /* the next node that does not begin with this one's bytes */
    uint32_t token; /* the tokens with exactly its bytes: id[token] up to the next node's */
    uint16_t depth; /* bytes */
    uint8_t byte;   /* the last of them */
    uint8_t chars;  /* most characters of tokens that begin so, if all are plain */
};

struct trie {
    struct trie_node *node; /* [n_node + 1], each before those that begin with it */
    uint32_t n_node;
    int32_t *id; /* of its tokens, in their order */
};

/* A plain token consists of whole characters, and none of them is a control character, " or \:
 * nearly everything that grammars tell apart. They are nine tenths of a vocabulary. */
struct token_trie {
    const struct tok *tok;
    int n_vocab, n_words; /* n_words: 64-bit words of a mask */
    int max_depth;
    struct trie all;  /* tokens that have bytes */
    struct trie rest; /* of those, without the plain ones up to the last level with a bound */
    uint64_t *plain;  /* [TRIE_LEVELS][n_words] masks of the plain tokens of at most as many
                         characters as the level says */
};

/* Characters of a level, the last one without bound */
extern const uint8_t cb_trie_level[TRIE_LEVELS];

/* n_vocab: ids of the model, which may be more than the tokenizer's. tok must stay. */
int cb_token_trie_new(const struct tok *tok, int n_vocab, struct token_trie **out);
void cb_token_trie_free(struct token_trie *t);

#endif
