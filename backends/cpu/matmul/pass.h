/* SPDX-License-Identifier: MIT */
/* pass.h - one pass over the matrices of a call, and the activations that it multiplies them with.
 */
#ifndef PASS_H
#define PASS_H

#include "base/ints.h"
#include "cpu/kern.h"
#include "kern_mm.h"

/* Forms of activations (kern_mm.h) */
enum mm_form { MM_PLAIN, MM_HALVED, MM_QUANT, MM_FORMS };

/* One pass: up to a few hundred tokens, all matrices of the call. */
struct pass {
    const struct kern_mm *k;
    struct par *par;
    const struct mm *mm;
    int n_mm, n_in;
    const struct weight *up; /* up projection that the gate mm[0] multiplies (n_mm is 1), or NULL */
    enum act_kind act;
    const struct kern_vec *vec;
    int tok0, n_tok;
    int tile, n_tile; /* tokens a tile, the last tile may be narrower; number of tiles */
    int use_panel;
    const struct kern_many *many; /* what multiplies panels or batches, or NULL: k's own kernels */
    size_t unit;                  /* bytes of packed weights an item of the loop */
    int panels;                   /* or panels, at most */
    int act16;                    /* 1: 16-bit records */
    int all_lines;                /* 1: one token of Q8_0 takes k->q8_all_lines */
    int batch;                    /* 1: a record of its own for each of several tokens */
    int split;           /* ranges that the tiles are divided into, as items of their own */
    const int32_t *some; /* [n_some] wanted rows, ascending; NULL: all */
    int n_some;
    int n_set;       /* 1: all matrices multiply the same tokens; else n_mm, tokens for each */
    const float *x;  /* [n_set][n_tok][n_in] at these strides, in floats */
    size_t x_step;   /* from set to set */
    size_t x_stride; /* from token to token */
    uint8_t *form[MM_FORMS]; /* [n_set] tiles of the forms that the call needs, else NULL */
    struct own_x *own;       /* [threads]; used with one token only */
    uint64_t number;         /* of this pass, and n_set - 1 before it */
};

static inline int mm_n_group(const struct weight *w)
{
    return (w->n_out + MM_ROWS - 1) / MM_ROWS;
}

static inline int mm_is_float(enum dtype t)
{
    return !mm_layout[t].lines;
}

/* The form that weights of type t are multiplied with */
static inline enum mm_form mm_form(const struct kern_mm *k, enum dtype t)
{
    return !mm_is_float(t) ? MM_QUANT : t == DT_BF16 && k->halve ? MM_HALVED : MM_PLAIN;
}

static inline int pass_has_float(const struct pass *p)
{
    return p->form[MM_PLAIN] || p->form[MM_HALVED];
}

/* Groups of w that a tile is multiplied with at once */
static inline int pass_groups_at_once(const struct pass *p, const struct weight *w)
{
    return p->batch && !mm_is_float(w->type) ? MM_GROUP_MAX : 1;
}

/* The tokens that a matrix of the call multiplies */
static inline int pass_set_of(const struct pass *p, const struct mm *mm)
{
    return p->n_set > 1 ? (int)(mm - p->mm) : 0;
}

static inline int pass_tile_width(const struct pass *p, int tile)
{
    return min_int(p->tile, p->n_tok - tile * p->tile);
}

/* activations.c: bytes of a token with room for every form, and of the tokens of all sets in some
 * forms (bits) */
size_t cb_mm_token_bytes(const struct kern_mm *k, int n_in);
size_t cb_pass_token_bytes(const struct pass *p, unsigned forms);
/* Lays out the activations of n_tok tokens at `at` */
void cb_pass_place(struct pass *p, unsigned forms, uint8_t *at);
void cb_pass_prepare(struct pass *p);
const void *cb_pass_x(const struct pass *p, int set, int tile, enum mm_form f, int thread);

/* shares.c: cuts the pass, whose tiles are set, into items for n_thread threads. memo: the cuts of
 * earlier passes, or NULL */
void cb_pass_divide(struct pass *p, int n_thread, struct pass_cut *memo);
int cb_pass_items(const struct pass *p);
/* Groups, or wanted rows, [g0, g1) of a matrix times tiles [t0, t1) */
struct pass_item {
    const struct mm *mm;
    int g0, g1, t0, t1;
};
struct pass_item cb_pass_item(const struct pass *p, int i);
double cb_pass_item_cost(const struct pass *p, const struct pass_item *it); /* in any unit */
/* panels.c: out[width][rows] of a tile, from row `row` on, to y: bias, residual, edge */
void cb_pass_store(const struct pass *p, const struct mm *mm, int tile, int row, int rows,
                   const float *out);
enum { MM_PANEL_BYTES = 256 << 10 }; /* unpacked weights a thread, sized for L2 */
size_t cb_mm_panel_bytes(const struct kern_mm *k, enum mm_panel kind, int n_in); /* at most */
/* Groups of w, with as many of the up projection, whose panels fit in MM_PANEL_BYTES */
int cb_pass_panel_groups(const struct pass *p, const struct weight *w);
/* Groups [g0, g1) times tiles [t0, t1) */
void cb_pass_panel_rows(const struct pass *p, const struct mm *mm, int g0, int g1, int t0, int t1,
                        int thread);

#endif
