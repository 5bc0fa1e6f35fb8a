/* SPDX-License-Identifier: MIT */
/* gen_ruler.h - a row of RULER's task table, shared by the generators. */
#ifndef GEN_RULER_H
#define GEN_RULER_H

#include "gen.h"

enum hay { HAY_NOISE, HAY_TEXT, HAY_NEEDLES, HAY_FILE };

struct ruler_task {
    const char *name;
    int (*make)(const struct gen *g, const struct ruler_task *t, int length, int index,
                struct item_list *out);
    const char *metric;
    int max_new;
    enum hay hay;
    enum value_kind key, value; /* retrieval tasks: kinds of keys and values */
    int n_key, n_value, n_query;
};

int cb_ruler_niah(const struct gen *g, const struct ruler_task *t, int length, int index,
                  struct item_list *out);
int cb_ruler_vt(const struct gen *g, const struct ruler_task *t, int length, int index,
                struct item_list *out);
int cb_ruler_cwe(const struct gen *g, const struct ruler_task *t, int length, int index,
                 struct item_list *out);
int cb_ruler_fwe(const struct gen *g, const struct ruler_task *t, int length, int index,
                 struct item_list *out);
int cb_ruler_qa(const struct gen *g, const struct ruler_task *t, int length, int index,
                struct item_list *out);

const char *cb_ruler_qa_file(const struct gen *g, const struct ruler_task *t); /* or NULL */
/* noise with insert[n] at depth[n] (percent, ascending) */
void cb_ruler_noise(int units, const char *const *insert, const double *depth, int n,
                    struct buf *out);
void cb_ruler_depths(struct rng *r, double *depth, int n); /* ascending */

#endif
