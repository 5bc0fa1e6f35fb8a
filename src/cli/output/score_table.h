/* SPDX-License-Identifier: MIT */
/* score_table.h - scores by task, length and policy: means with intervals, and the bytes actually
 * held. */
#ifndef SCORE_TABLE_H
#define SCORE_TABLE_H

#include <stdio.h>

#include "eval/ask_all.h"

struct row {
    const char *task; /* "mean" for the mean over tasks and lengths */
    int length;       /* of generated items, else 0 */
    char policy[200]; /* with type and prefill, if not f16 and dense */
    enum question question;
    int n;
    double score, low, high; /* percent; 95 % interval (Wilson's) */
    double loss, loss_error; /* points that the full cache is better on the same items, and the half
                                width of the 95 % interval; NAN with fewer than two items */
    double kv_bytes;         /* mean of the bytes held at the end of an answer */
    double kv_share, read_share; /* of the full cache's bytes: held, read by the last token */
};

struct rows {
    struct row *at; /* [n] */
    int n;
};

int cb_rows_make(const struct run *r, const struct item_list *items, const struct answers *have,
                 struct rows *out);
void cb_rows_free(struct rows *x);

void cb_rows_md(const struct rows *x, FILE *f);
void cb_rows_csv(const struct rows *x, FILE *f);
/* bad: unreadable lines; skipped: items that are too long */
int cb_rows_json(const struct rows *x, const struct run *r, int bad, FILE *f);

#endif
