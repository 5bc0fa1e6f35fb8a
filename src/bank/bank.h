/* SPDX-License-Identifier: MIT */
/* bank.h - the context bank: all cached keys and values of one timeline, one store for each layer;
 * the states of layers without keys; and how far the timeline has been fed. */
#ifndef BANK_H
#define BANK_H

#include "states.h"
#include "store.h"
#include "store_kivi.h"
#include "store_prepack.h"
#include "store_rows.h"
#include "store_sketch.h"

struct layer; /* model/model.h */

struct bank {
    struct device *dev;
    int n_layer, n_ctx;
    int n_kv, hd;              /* KV heads and head_dim of the layers that policies act on */
    const struct layer *layer; /* [n_layer] the model's: each has an n_kv and hd of its own */
    enum kv_type type_k, type_v;
    int rows_only, small_pages;      /* copied to each store */
    int one_row;                     /* 1: values are rows of keys (store_state.h) */
    struct kivi_form kivi_k, kivi_v; /* how the oldest keys and values are quantised */
    struct store *store;             /* [n_layer] */
    struct states states;            /* empty where all layers have keys */
    uint64_t checkpoint_bytes;       /* most bytes of their checkpoints; 0 = the default */
    uint64_t *beside;                /* [n_layer] bytes that a reader stores beside it */
    int n_seen;                      /* tokens fed so far: the next token's position */
    int n_feed;                      /* tokens passing through the layers now, 0 between feeds */
    int prompt_end;                  /* tokens fed when the last prompt ended */
    int decoding;                    /* 1 while a generated token is fed */
    int n_most;                      /* most slots that a KV head has held */
    uint64_t peak_bytes;             /* largest size of all stores so far */
    uint64_t read_bytes;             /* bytes that the current decoded token reads */
    /* Pairs of a query head's query and a token in the prompts so far: those that attention has
     * read, and all that the model lets it read */
    uint64_t pairs_read, pairs_all;
};

/* Stored types of keys and values by name, such as "f16", "q8_0", "kivi4", "kivi2:128:64:32" (KIVI
 * with a residual of 128 tokens, groups of 64 and 32 first tokens in f16), or "planes" of keys
 * (store_planes.h); NULL = "f16".
 * n_layer, n_ctx, n_kv, hd, layer, rows_only, small_pages, one_row, checkpoint_bytes and dev are
 * set by the caller. n_col: float columns for each slot. */
int cb_bank_open(struct bank *b, const char *type_k, const char *type_v, int n_col);
/* Whether some model could have them: CB_EARG if not */
int cb_bank_check_types(const char *type_k, const char *type_v);
void cb_bank_close(struct bank *b);
/* Forgets the current feed, and tokens from n_seen on: all of them, none, or those after a place
 * that cb_bank_checkpoint() gives. */
void cb_bank_cut(struct bank *b, int n_seen);
/* The last place at or before n tokens that a cut can go to: n, or a checkpoint of the states where
 * n is not within the last draft */
int cb_bank_checkpoint(const struct bank *b, int n);
uint64_t cb_bank_bytes(const struct bank *b);
uint64_t cb_bank_beside(const struct bank *b); /* of them: cb_store_beside() */
int cb_bank_max_len(const struct bank *b); /* most slots that a KV head of any store holds now */
void cb_bank_note_beside(struct bank *b, int l, uint64_t bytes);
void cb_bank_note_peak(struct bank *b, int l); /* call after layer l has grown */
int cb_bank_has_kivi(const struct bank *b);    /* or keys in planes */
int cb_bank_in_planes(const struct bank *b);   /* those are for layers with sketches to open */

#endif
