/* SPDX-License-Identifier: MIT */
/* tiny.h - small random models of every supported family, so that tests need no download. */
#ifndef TINY_H
#define TINY_H

#include "gguf_make.h"

/* Copy a row of the table, change fields for the test, save. Metadata and tensors have the names of
 * converted models; the vocabulary is small but complete (any bytes can be tokenized). */
struct tiny {
    const char *name; /* family: "llama", "llama3.1", "mistral", ... */
    const char *arch; /* general.architecture */
    const char *pre;  /* pre-tokenizer of a byte-level BPE vocabulary; NULL = SentencePiece */
    int n_layer, n_embd, n_head, n_kv, hd, n_ff, n_ctx;
    int n_vocab; /* rows of the embedding, at least the vocabulary's size; 0 = that size */
    int window;  /* sliding window in tokens, 0 = none */
    float rope_base;
    float rope_linear; /* linear scaling factor, 0 = none */
    int rope_factors;  /* 1: rope_freqs.weight, as llama 3.1 */
    int bias;          /* 1: biases of q, k and v */
    int tied;          /* 1: no output.weight */
    int shared_kv;     /* the last layers, without keys and values of their own */
    enum dtype type;   /* type of the matrices; in the table, row lengths are multiples of 256 */
    uint64_t seed;
};

extern const struct tiny cb_tiny[]; /* ends with name NULL */

struct tiny cb_tiny_get(const char *name); /* ends the program if there is no such row */
struct tiny
cb_tiny_small(const char *name); /* row lengths are multiples of 64: for all types but K types */

/* Puts the vocabulary of t->pre; returns the number of tokens. */
int cb_tiny_put_vocab(const struct tiny *t, struct gguf_make *m);
void cb_tiny_make(const struct tiny *t, struct gguf_make *m);
void cb_tiny_save(const struct tiny *t, const char *path);

#endif
