/* SPDX-License-Identifier: MIT */
/* states.h - the state of layers that mix tokens without keys, all layers of a session together:
 * as it is now, as it was when the prompt in progress began, and checkpoints, from which a timeline
 * that is cut back goes on. Checkpoints stand at multiples of STATE_GRID tokens, where rows of keys
 * can be cut without a trace. */
#ifndef STATES_H
#define STATES_H

#include <stddef.h>
#include <stdint.h>

enum {
    STATE_GRID = 128,       /* KV_PREPACK: a cut there unpacks no block */
    STATE_EVERY = 512,      /* tokens between checkpoints, while bytes allow; the last so many have
                               one at each place of the grid that a token was generated at, and
                               one at the prompt's end */
    STATE_MOST_POINTS = 256 /* checkpoints */
};

struct state_point {
    int at;      /* tokens that had been fed */
    int n_layer; /* layers that are in it; fewer than all: a prompt is in progress */
    float *x;
};

struct states {
    int n_layer;
    size_t
        *from; /* [n_layer + 1] floats before a layer's state; the convolution's rows come first */
    size_t *past; /* [n_layer] floats of these rows */
    float *now, *before;
    int has_before;
    int apart; /* 1: tokens of a draft go through layers: they write the state after them to
                  `before` and leave `now` as it is */
    int draft; /* the last tokens, fed so: `before` is the state before them; 0: none */
    struct state_point *point; /* [n] ascending */
    int n, most;               /* checkpoints there are, and that the limit allows */
};

/* past[n_layer] and matrix[n_layer]: floats of each layer's state. limit: most bytes of
 * checkpoints. Call cb_states_close() even after a failure. CB_ENOMEM */
int cb_states_open(struct states *s, int n_layer, const size_t *past, const size_t *matrix,
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
void cb_states_clear(struct states *s); /* before the first token */

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
    return (s->apart ? s->before : s->now) + s->from[l];
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

/* Tokens are about to be decoded together, and may be taken back. Then all layers have taken n of
 * them; or the last ones of these are taken back: the state is again that before the first. */
void cb_states_apart(struct states *s);
void cb_states_drafted(struct states *s, int n);
void cb_states_undraft(struct states *s);

/* ---- checkpoints ---- */

/* A prompt of the tokens from..to-1 begins: which checkpoints it will leave. Older ones make room.
 * Without memory there are fewer: a cut then computes more. */
void cb_states_prompt(struct states *s, int from, int to);
/* How many tokens from position `pos` on may go through a layer before its state is wanted */
int cb_states_room(const struct states *s, int pos);
/* Layer l has taken all tokens before `pos`. */
void cb_states_passed(struct states *s, int l, int pos);
/* All layers have taken the tokens before `pos`, the last of which was generated. */
void cb_states_generated(struct states *s, int pos);
/* Goes back to the last checkpoint at or before n tokens -> tokens that it stands behind, 0: none,
 * and the state is that before the first token. Later checkpoints are dropped. */
int cb_states_cut(struct states *s, int n);
/* Adds a checkpoint at `at`, to be filled by a file, whose session may have allowed more bytes. At
 * most STATE_MOST_POINTS. CB_ENOMEM */
int cb_states_restore(struct states *s, int at);
/* Drops checkpoints until the limit holds. */
void cb_states_fit(struct states *s);

#endif
