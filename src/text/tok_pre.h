/* SPDX-License-Identifier: MIT */
/* tok_pre.h - how byte-level BPE tokenizers split a text into words. */
#ifndef TOK_PRE_H
#define TOK_PRE_H

#include <stddef.h>

enum { MAX_SPLIT = 6 };

struct tok_pre {
    const char *names;            /* values of tokenizer.ggml.pre, with blanks between */
    const char *split[MAX_SPLIT]; /* each expression splits the pieces that the previous one left */
    int nfc;                      /* 1: the original tokenizer normalises to NFC */
    int whole;                    /* 1: a word that is a token is not split into merges */
    int add_bos;                  /* default if the file does not say */
};

const struct tok_pre *cb_tok_pre(const char *name, size_t n); /* NULL = unknown */
const struct tok_pre *cb_tok_pre_row(int i);                  /* NULL past the last */

#endif
