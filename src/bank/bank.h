/* SPDX-License-Identifier: MIT */
/* bank.h - the context bank: all cached keys and values of one timeline, a store a layer, and how
 * far the timeline has been fed. */
#ifndef BANK_H
#define BANK_H

#include "store.h"
#include "store_kivi.h"
#include "store_prepack.h"
#include "store_rows.h"

struct bank {
    struct device *dev;
    int n_layer, n_kv, hd, n_ctx;
    enum kv_type type_k, type_v;
    int rows_only, small_pages;      /* as in each store */
    struct kivi_form kivi_k, kivi_v; /* how the oldest of them are quantised */
    struct store *store;             /* [n_layer] */
    int n_seen;                      /* tokens fed so far: the next token's position */
    int n_feed;                      /* tokens on their way through the layers, 0 between feeds */
    int prompt_end;                  /* tokens fed when the last prompt ended */
    int decoding;                    /* 1 while one generated token is fed */
    int n_most;                      /* slots that a KV head has held at most */
    uint64_t peak_bytes;             /* the most that the stores have held */
    uint64_t read_bytes;             /* by the token that is decoded */
};

/* Stored types of keys and values by name, such as "f16", "q8_0", "kivi4" or "kivi2:64" (KIVI with
 * a residual of 64 tokens); NULL = "f16". n_layer, n_kv, hd, n_ctx, rows_only, small_pages and dev
 * are set by the caller.
 * n_col: float columns a slot. */
int cb_bank_open(struct bank *b, const char *type_k, const char *type_v, int n_col);
void cb_bank_close(struct bank *b);
/* Forgets tokens n_seen.. of every store, and the feed at hand. */
void cb_bank_cut(struct bank *b, int n_seen);
/* `to` was opened as `from` was, and holds what that holds. After a failure it can only be closed.
 */
int cb_bank_copy(struct bank *to, const struct bank *from);
uint64_t cb_bank_bytes(const struct bank *b);
int cb_bank_max_len(const struct bank *b);     /* slots of the longest store */
void cb_bank_note_peak(struct bank *b, int l); /* layer l has grown */
int cb_bank_has_kivi(const struct bank *b);

#endif
