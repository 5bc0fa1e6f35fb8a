/* SPDX-License-Identifier: MIT */
/* reader.h - a way of reading a layer, as a table of functions. A layer of a session gets its
 * reader once, when the session opens (reader_table.c): from its plan row and the model's layer. A
 * reader owns what is private to its way of reading. Others ask for its traits and call its hooks;
 * they know no reader by its name. See doc/ADD-A-READER.md. */
#ifndef READER_H
#define READER_H

#include "attention.h"

struct area;

/* A layer that is looking for its reader */
struct claim {
    const struct layer_plan *row; /* the layer's, among those of all layers */
    int l, n_layer;
    const struct layer *y; /* the model's; NULL where only the plan is known */
};

struct reader {
    const char *name; /* for messages */
    unsigned traits;  /* enum reader_trait */
    int max_step;     /* most tokens that can be decoded together; 0: any number */
    /* Why decoded tokens cannot be taken back, or go through a layer together; NULL: they can */
    const char *undraftable;
    /* Why the layer does not go with a form of prefill that chooses; NULL: it does */
    const char *no_choice;

    /* 1: the layer is to be read so. NULL: the reader of layers that no other one claims */
    int (*claims)(const struct claim *c);

    /* ---- of a session: x is the state of all layers that have this reader, NULL if it needs
     * none. All hooks from here on may be NULL. ---- */
    size_t state; /* bytes of it (state_memory.h); 0: none, and no open() */
    int (*open)(struct attention *a, void *x); /* fills it, which is zeros */
    /* Closes what is not of its memory, after a failure too. NULL: all is */
    void (*close)(struct attention *a, void *x);
    void (*clear)(struct attention *a, void *x); /* the slots may be those of another text */
    /* Work space for prompts of n_feed tokens and n_most slots; NULL: all of the state
     * (cb_state_work) */
    size_t (*work_bytes)(const struct attention *a, const void *x, int n_feed, int n_most);
    /* Room for n tokens that are decoded together */
    int (*fit_draft)(struct attention *a, void *x, int n);
    /* Why the timeline cannot be cut back to n tokens; NULL: it can. cut() is called before the
     * bank is cut. */
    const char *(*uncut)(const struct attention *a, const void *x, int n);
    void (*cut)(struct attention *a, void *x, int n);
    /* The timeline and its states have been cut to the n tokens of a checkpoint. */
    int (*resume)(struct attention *a, void *x, int n);

    /* ---- of a feed: it begins, and its n tokens have gone through all layers ---- */
    void (*begin)(struct attention *a);
    void (*fed)(struct attention *a, int n);

    /* ---- of a layer, in the order of a feed ---- */
    /* The most tokens that go through the layer at once from the i-th of a feed on */
    int (*room)(const struct attention *a, int l, int i);
    /* Tokens go through the layer's state -> what its last product reads, [n_tok][mixer->out.n_in];
     * with READ_STATE. Then the feed's tokens before position pos have gone through the layer. Such
     * a reader has none of the hooks below, up to the memory plan's. */
    const float *(*mix)(const struct mix_call *c);
    void (*passed)(struct attention *a, int l, int pos);
    /* Queries that the input of the layer before gives, for token i of those that are decoded
     * together; q[n_head][hd], rotated. A layer with this hook gets them before it attends. */
    void (*guess)(struct attention *a, int l, int i, const float *q);
    /* The new rows of c are in the store. */
    int (*stored)(struct attention *a, const struct chunk *c);
    /* Adds the parts that c reads and returns 1; returns 0 if c reads the whole store as it is. */
    int (*parts)(struct attention *a, const struct chunk *c);
    /* c has attended; lse[c->n][n_head] with trait WANTS_LSE. Also for a chunk that another session
     * has computed (shared prefill). */
    int (*attended)(struct attention *a, const struct chunk *c, const float *lse);
    /* A decoded token has gone through the layer, and nobody has waited for the device yet. */
    void (*ahead)(struct attention *a, int l);
    /* The feed has gone through the layer, and the policy has dropped what it wants to drop. */
    int (*settle)(struct attention *a, int l);
    /* score[n_head][n_ctx]: those of slots that a query head does not read become 0 */
    void (*mask)(const struct attention *a, int l, float *score);

    /* ---- of a layer whose slots are dealt out to ranks (context_split.h) ---- */
    /* They may be, in blocks of a multiple of this many positions: what a decoded token reads is
     * chosen over all ranks (rank_choice.h). NULL, or 0: they may be only
     * where every token reads all slots */
    int (*deals_by)(const struct attention *a, int l);
    /* Bytes that a rank sends to choose for the last of n tokens, in *messages. NULL: none */
    uint64_t (*choice_bytes)(const struct attention *a, int l, int n, int *messages);

    /* ---- of a layer, for the memory plan ---- */
    /* Bytes that a decoded token reads, its own among the layer's n slots; *scanned: of them,
     * sketches. NULL: whole rows */
    uint64_t (*read_bytes)(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned);
    /* Bytes that the layer holds beside the rows of its slots after n tokens */
    uint64_t (*held_bytes)(const struct attention *a, int l, int n);
    /* Bytes of the slots' rows that the layer does not hold */
    uint64_t (*unheld_bytes)(const struct attention *a, int l, const struct planned *p);
    /* After this many generated tokens the bytes of the session's layers fall. */
    int (*period)(const struct attention *a, const void *x);

    /* ---- of a layer, as plain data (bank/store_areas.h): what forks copy and banks save. Returned
     * is how many counts or areas there are; with out NULL, how many areas there may be ---- */
    int (*counts)(const struct attention *a, int l, int32_t *out);
    int (*set_counts)(struct attention *a, int l, const int32_t *counts);
    int (*areas)(const struct attention *a, int l, struct area *out);
    /* Bytes that the first n tokens take of one of its areas of keys. NULL: it has none */
    size_t (*area_of)(const struct attention *a, const struct area *of, int n);
    /* Numbers of a key, where an area has keys in strips (device/index_strips.h); else 0. NULL: it
     * has none */
    int (*area_strips)(const struct attention *a, const struct area *of);
    int (*check)(const struct attention *a, int l); /* after the areas were filled from a file */
};

/* The state that the reader of layer l has in the session */
static inline void *cb_reader_state(const struct attention *a, int l)
{
    return a->layer[l]->x;
}

/* The first layer that has the state x; for what layers do not differ in */
static inline int cb_reader_first(const struct attention *a, const void *x)
{
    int l = 0;

    while (cb_reader_state(a, l) != x)
        l++;
    return l;
}

/* Has the reader of layer l these traits? */
static inline int cb_reader_has(const struct attention *a, int l, unsigned traits)
{
    return (a->layer[l]->r->traits & traits) == traits;
}

#endif
