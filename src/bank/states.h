/* SPDX-License-Identifier: MIT */
/* states.h - the state of layers that mix tokens without keys, all layers of a session together:
 * as it is now, as it was when the prompt in progress began, and checkpoints, from which a timeline
 * that is cut back continues. Checkpoints stand at multiples of STATE_GRID tokens, where rows of
 * keys can be cut without a trace. */
#ifndef STATES_H
#define STATES_H

#include <stddef.h>
#include <stdint.h>

enum {
    STATE_GRID = 128,        /* KV_PREPACK: a cut there unpacks no block */
    STATE_EVERY = 512,       /* tokens between checkpoints, while bytes allow; the last 512 tokens
                                have one at each place of the grid that a token was generated at,
                                and one at the prompt's end */
    STATE_MOST_POINTS = 256, /* checkpoints */
    STATE_LIMIT = 1 << 30    /* bytes of checkpoints, unless the caller has a limit */
};

struct checkpoint;

struct state_point {
    int at;      /* tokens that had been fed */
    size_t done; /* floats that are in it; fewer than all: a prompt is in progress */
    struct checkpoint *x;
};

struct states {
    int n_layer;
    size_t
        *from; /* [n_layer + 1] floats before a layer's state; the convolution's rows come first */
    size_t *past; /* [n_layer] floats of these rows */
    float *now, *before;
    int has_before;
    int drafting; /* 1: tokens of a draft go through layers: they write the state after them to
                  `before` and leave `now` as it is */
    int draft;    /* the last tokens, fed so: `before` is the state before them; 0: none */
    int whole;    /* 1: these were decoded one by one, and are taken back together */
    int holding;  /* 1: so are tokens that are decoded one by one from here on */
    struct state_point *point; /* [n] ascending */
    int n, most;               /* checkpoints there are, and that the limit allows */
};

/* Floats of layer l's state, of which *past are its past's and the others its matrix's */
typedef size_t state_floats(const void *arg, int l, size_t *past);
/* limit: most bytes of checkpoints, 0 = the default. Call cb_states_close() even after a failure.
 * CB_ENOMEM */
int cb_states_open(struct states *s, int n_layer, state_floats *floats_of, const void *arg,
                   uint64_t limit);
void cb_states_close(struct states *s);
static inline int cb_states_is(const struct states *s)
{
    return s->now != NULL;
}
size_t cb_states_bytes(const struct states *s); /* of one copy of all layers' states */
/* Bytes of all checkpoints now, and after a prompt of n_prompt tokens and n_gen generated ones */
uint64_t cb_states_points(const struct states *s);
uint64_t cb_states_planned(const struct states *s, int n_prompt, int n_gen);

static inline float *cb_states_past(const struct states *s, int l)
{
    return s->now + s->from[l];
}

static inline float *cb_states_matrix(const struct states *s, int l)
{
    return s->now + s->from[l] + s->past[l];
}

/* Where layer l writes the two */
static inline float *cb_states_new_past(const struct states *s, int l)
{
    return (s->drafting ? s->before : s->now) + s->from[l];
}

static inline float *cb_states_new_matrix(const struct states *s, int l)
{
    return cb_states_new_past(s, l) + s->past[l];
}

/* ---- what is in progress ---- */

void cb_states_keep(struct states *s); /* remembers the state as it is */
/* Goes back to it, if it is remembered: n tokens had been fed. */
void cb_states_back(struct states *s, int n);
void cb_states_drop(struct states *s); /* or forgets it */

/* Tokens are about to be decoded together, and may be taken back; all layers have taken n of them.
 */
void cb_states_drafting(struct states *s);
void cb_states_drafted(struct states *s, int n);
/* 1: from here on tokens that are decoded one by one are a draft; 0: they are no more. The first
 * one is fed as cb_states_drafting() has it, the others change `now`; call the second after each.
 */
void cb_states_hold(struct states *s, int on);
void cb_states_held(struct states *s);
/* May the tokens from n on of n_seen be taken back, since they are of the last draft? */
static inline int cb_states_in_draft(const struct states *s, int n_seen, int n)
{
    return s->draft && (s->whole ? n == n_seen - s->draft : n >= n_seen - s->draft);
}
/* They are: the state is again that before the draft. Then layers take those before n once more,
 * and cb_states_drop() ends it. */
void cb_states_undraft(struct states *s);

/* ---- checkpoints ---- */

/* A prompt of the tokens from..to-1 begins: which checkpoints it will leave. Older ones make room.
 * Without memory there are fewer: a cut then computes more. */
void cb_states_prompt(struct states *s, int from, int to);
/* How many tokens from position `pos` on may go through a layer before its state is wanted */
int cb_states_room(const struct states *s, int pos);
/* The same for a prompt of n tokens that is planned, the first of its timeline */
int cb_states_planned_room(const struct states *s, int n, int pos);
/* Layer l has taken all tokens before `pos`. */
void cb_states_passed(struct states *s, int l, int pos);
/* All layers have taken the tokens before `pos`, the last of which was generated. */
void cb_states_generated(struct states *s, int pos);
/* Tokens at the last checkpoint at or before n tokens; 0: the beginning */
int cb_states_last(const struct states *s, int n);
/* Reads that checkpoint if it stands in a file. CB_EFORMAT, CB_EIO: the file does not have it as it
 * was saved, and the checkpoint is dropped. CB_ENOMEM */
int cb_states_fetch(struct states *s, int n);
/* Goes back to the checkpoint at `at`, which is in memory, or to the beginning. Later checkpoints
 * are dropped. */
void cb_states_cut(struct states *s, int at);
/* Drops checkpoints until the limit holds. */
void cb_states_fit(struct states *s);

/* ---- as plain data (store_areas.h) ---- */

struct area;
struct bank_file;
int cb_states_n_counts(const struct states *s);
void cb_states_counts(const struct states *s, int32_t *out);
void cb_states_uncount(int32_t *counts, int i); /* as if checkpoint number i were not there */
/* Takes the counts of a timeline of n_seen tokens. The file may hold more checkpoints than the
 * limit allows: see cb_states_fit(). The checkpoints come with one of the two calls below.
 * CB_EFORMAT */
int cb_states_set_counts(struct states *s, const int32_t *counts, int n_seen);
/* They stay in the file f until they are wanted. CB_EFORMAT: it has others; CB_ENOMEM */
int cb_states_leave(struct states *s, const struct bank_file *f);
void cb_states_share(struct states *s, const struct states *from); /* they are those of `from` */
/* 1 + s->n at most. A checkpoint's memory is NULL: see checkpoint.h */
int cb_states_areas(const struct states *s, struct area *out);

#endif
