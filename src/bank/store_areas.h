/* SPDX-License-Identifier: MIT */
/* store_areas.h - a store as plain data: its counts, and the areas of memory that they describe.
 * Copying a session and saving it to a file are loops over such lists. */
#ifndef STORE_AREAS_H
#define STORE_AREAS_H

#include "store_state.h"

/* Numbers of the file format, ctxbank-bank(5): they stay. */
enum area_kind {
    AREA_COUNTS = 1, /* of the whole session: numbers that give the sizes of the others */
    AREA_KEYS,       /* rows of keys; prepacked blocks stand in place of their rows */
    AREA_VALUES,
    AREA_POS,       /* position of each slot */
    AREA_ROW,       /* row of each slot */
    AREA_COLUMN,    /* floats of a policy for each slot; head counts columns: kv * n_col + col */
    AREA_STEP_KEYS, /* quantisation steps of prepacked keys */
    AREA_STEP_VALUES,
    AREA_KIVI_KEYS, /* quantised keys */
    AREA_KIVI_VALUES,
    AREA_KIVI_MAP_KEYS, /* quantised row of each slot */
    AREA_KIVI_MAP_VALUES,
    AREA_SKETCH, /* of keys, whole blocks */
    AREA_SKEW,   /* of partial keys */
    AREA_SKEWED_AT,
    AREA_STORE_KINDS,
    AREA_CHOICE_SLOTS = 20, /* of a layer that chooses: attention/readers/chooser.c */
    AREA_CHOICE_QUERY,      /* head counts the queries of the window */
    AREA_CHOICE_SCORES,
    AREA_INDEX_KEYS,   /* of a trained selector, rows: attention/index_keys.h */
    AREA_ENTRIES = 25, /* rows that stand for several tokens; head 1: their keys that are scored */
    AREA_WATCH = 30,   /* of the policy: when each layer is scored */
    AREA_LAYER_STATE,  /* the method's own */
    AREA_STATE,
    AREA_TOKENS = 40, /* of the session: ids */
    AREA_LOGITS,
    AREA_DECODED,          /* a byte a token: 1 = it was decoded, 0 = it is of a prompt */
    AREA_REMEMBERED,       /* what layers without keys remember, layer after layer (states.h) */
    AREA_CHECKPOINT,       /* the same after fewer tokens; head counts the checkpoints */
    AREA_HEAD_COUNTS = 50, /* of the head for later tokens; its areas come last */
    AREA_HEAD_STATE,       /* states of tokens that it has not taken yet */
    AREA_HEAD_ROWS         /* rows of its layer and what stands beside them; head counts them */
};

struct area {
    enum area_kind kind;
    int layer, head;
    uint64_t from; /* bytes from the beginning of the head's memory of this kind */
    void *at;
    size_t bytes;
};

/* Rows that a reader has beside the store's */
static inline int cb_area_is_readers(uint32_t kind)
{
    return kind == AREA_INDEX_KEYS || kind == AREA_ENTRIES;
}

/* Keys, values and keys of selectors, which are many; all others are lists beside them. */
static inline int cb_area_is_rows(uint32_t kind)
{
    return kind == AREA_KEYS || kind == AREA_VALUES || kind == AREA_KIVI_KEYS ||
           kind == AREA_KIVI_VALUES || kind == AREA_SKETCH || cb_area_is_readers(kind);
}

/* int32 numbers that describe how full a store is */
int cb_store_n_counts(const struct store *s);
void cb_store_counts(const struct store *s, int32_t *out);
/* Gives an empty store these counts, and reserves the lists that they need; the areas are then
 * still to be filled. Prepacked blocks may be those of another device: see cb_store_repack().
 * CB_EFORMAT, with cb_error(): no store of this shape has such counts. */
int cb_store_set_counts(struct store *s, struct device *d, const int32_t *counts);
/* The same with the counts of a store of another policy, whose rows may be prepacked though this
 * store's are read one by one: see cb_store_unpack_all(). There are no sketches yet. */
int cb_store_adopt_counts(struct store *s, struct device *d, const int32_t *counts);
/* The areas in use, in a fixed order -> out[cb_store_most_areas()]; returns how many. l: the
 * layer's number. */
int cb_store_most_areas(const struct store *s);
int cb_store_areas(const struct store *s, int l, struct area *out);
/* Bytes that the first n slots of a head take of its area of this kind, for stores that have
 * dropped nothing: n is a multiple of KV_PREPACK. 0: the kind is not cut by slots there. */
size_t cb_store_area_of(const struct store *s, enum area_kind kind, int n);
/* After the areas were filled from a file: CB_EFORMAT if a list points outside the store, or a
 * position is not below n_seen. */
int cb_store_check_lists(const struct store *s, int n_seen);

#endif
