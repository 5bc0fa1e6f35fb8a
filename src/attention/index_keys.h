/* SPDX-License-Identifier: MIT */
/* index_keys.h - the keys that trained selectors score, in reserved memory of their own: one a
 * token, or one for several tokens. Forks share them, saved banks map them. For readers. */
#ifndef INDEX_KEYS_H
#define INDEX_KEYS_H

#include "attention.h"
#include "bank/store_areas.h"

struct index_keys {
    int strips;            /* 1: in strips (device/index_strips.h), 0: rows of `type` */
    enum kv_type type;     /* of rows */
    int hd, per;           /* numbers of a key; tokens that it stands for */
    uint8_t *at;           /* in the order of tokens; NULL: the layer has none */
    struct device *mirror; /* the device that may hold copies; NULL: none does */
};

/* What selectors want of their keys: scores that are summed over the index heads, or each head's */
enum index_use { INDEX_SUMS, INDEX_EACH };

/* Room for the keys of n tokens, of the type that layer l's plan asks for, in the state's memory.
 * CB_EARG where the type's blocks do not fit hd; CB_ENOMEM */
int cb_index_keys_open(struct index_keys *x, void *state, const struct attention *a, int l,
                       enum index_use use, int hd, int per);
/* The same as rows of type t */
int cb_index_rows_open(struct index_keys *x, void *state, const struct attention *a, enum kv_type t,
                       int hd, int per);
/* The device may hold copies of these: it has memory of its own, and scores them. */
int cb_index_keys_mirror(struct index_keys *x, const struct attention *a);
/* Keys k[n][hd], `stride` floats apart, become keys at.. by the ops of d */
void cb_index_keys_put(const struct index_keys *x, struct device *d, const float *k, int stride,
                       int n, int at);
/* The largest logit q . k of each piece of keys (struct score), for tokens i..i+m-1 of chunk c; the
 * last of them sees n rows, and each one before it a row less -> out[m][n_head][stride] */
void cb_index_keys_largest(const struct index_keys *x, const struct attention *a,
                           const struct chunk *c, int i, int m, int n, int piece, float *out,
                           int stride);
/* Asks for the first n keys where the session's may lie on the disk: they are about to be scored.
 */
void cb_index_keys_ahead(const struct index_keys *x, const struct attention *a, int n);
/* Bytes of the keys that n tokens have made, and those that a scan of n keys reads */
size_t cb_index_keys_bytes(const struct index_keys *x, int n);
/* Bytes of them that later tokens leave as they are: blocks of strips are whole */
size_t cb_index_keys_whole(const struct index_keys *x, int n);
uint64_t cb_index_keys_scanned(const struct index_keys *x, int n);

/* ---- the keys of a session. The states of readers begin with this, and the hooks are theirs ----
 */

enum { INDEX_SORTS = 2 }; /* of keys that a layer may have: areas of head 0, 1 */

struct index_sets {
    struct index_keys *key; /* [n_layer][INDEX_SORTS] */
    int *most;              /* [n_layer] tokens that a query reads: all it sees, up to these */
    int32_t *list;          /* [cap] what tokens of a chunk read */
    size_t cap;
};

/* 1: layer l belongs to the state x */
typedef int index_layer(const struct attention *a, int l, const void *x);
/* Where the CPU `does` something for another device, the policy's note says so, with the layers. */
void cb_index_note_host(const struct attention *a, index_layer *belongs, const void *x,
                        const char *does);
/* CB_EUNSUPPORTED: the device has no CPU that scores keys; CB_ENOMEM */
int cb_index_sets_open(const struct attention *a, struct index_sets *x);
void cb_index_sets_close(struct attention *a, void *state); /* a hook */
/* The policy's note says what the CPU does for another device. by_blocks: prompts attend by struct
 * attn_blocks */
void cb_index_sets_note(const struct attention *a, const struct index_sets *x, int by_blocks);
/* Room in x->list for n lists of `each` tokens; what is there stays. CB_ENOMEM */
int cb_index_sets_fit(struct index_sets *x, size_t n, size_t each);
static inline struct index_keys *cb_index_set(const struct index_sets *x, int l, int sort)
{
    return &x->key[l * INDEX_SORTS + sort];
}

/* A chunk's queries all choose, or none does. */
int cb_index_room(const struct attention *a, int l, int i);
int cb_index_stored(struct attention *a, const struct chunk *c); /* the keys of sort 0 */
uint64_t cb_index_held_bytes(const struct attention *a, int l, int n);
void cb_index_cut(struct attention *a, void *state, int n);
void cb_index_clear(struct attention *a, void *state);
int cb_index_areas(const struct attention *a, int l, struct area *out);
size_t cb_index_area_of(const struct attention *a, const struct area *of, int n);
int cb_index_area_strips(const struct attention *a, const struct area *of);
int cb_index_check(const struct attention *a, int l);
/* The hooks that are the same for all */
#define INDEX_HOOKS                                                                                \
    .close = cb_index_sets_close, .clear = cb_index_clear, .cut = cb_index_cut,                    \
    .room = cb_index_room, .held_bytes = cb_index_held_bytes, .areas = cb_index_areas,             \
    .area_of = cb_index_area_of, .area_strips = cb_index_area_strips, .check = cb_index_check

#endif
