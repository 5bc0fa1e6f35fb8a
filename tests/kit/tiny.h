/* SPDX-License-Identifier: MIT */
/* tiny.h - small random models of every family that there is, so that tests need no download. */
#ifndef TINY_H
#define TINY_H

#include "gguf_make.h"

/* Start from a row of the table, change what the test needs, save. Metadata and tensors are named
 * as in converted models; the vocabulary is small but whole (any bytes can be tokenized). */
struct tiny {
    const char *name; /* of the family: "llama", "llama3.1", "mistral", ... */
    const char *arch; /* general.architecture */
    const char *pre;  /* pre-tokenizer of a byte-level BPE vocabulary; NULL = SentencePiece */
    int n_layer, n_embd, n_head, n_kv, hd, n_ff, n_ctx;
    int n_vocab; /* rows of the embedding; 0 = as the vocabulary, not below */
    int window;  /* sliding window in tokens, 0 = none */
    float rope_base;
    float rope_linear; /* linear scaling factor, 0 = none */
    int rope_factors;  /* 1: rope_freqs.weight, as llama 3.1 */
    int bias;          /* 1: biases of q, k and v */
    int tied;          /* 1: no output.weight */
    enum dtype type;   /* of the matrices; rows are multiples of 256 in the table's rows */
    uint64_t seed;
};

extern const struct tiny cb_tiny[]; /* ends with name NULL */

struct tiny cb_tiny_get(const char *name);   /* ends the program when there is no such row */
struct tiny cb_tiny_small(const char *name); /* rows of 64, for all types but the K ones */

void cb_tiny_make(const struct tiny *t, struct gguf_make *m);
void cb_tiny_save(const struct tiny *t, const char *path);

#endif
