/* SPDX-License-Identifier: MIT */
/* calibrate_trial.h - tries the candidates of an analysis on its texts and on generated needle
 * items. */
#ifndef CALIBRATE_TRIAL_H
#define CALIBRATE_TRIAL_H

#include "calibrate.h"
#include "calibrate/trial.h"
#include "eval/gen.h"

struct trials {
    struct trial t;
    struct haystack hay;
    struct item_list probe, items; /* different ones: to measure with, to try on */
    double keep;  /* share of the full cache's answers that a candidate must give */
    int by_token; /* 1: `keep` is a share of the predictions instead */
};

/* --budget, or 1/part of the context */
int cb_trials_budget(const struct calibrate *c, int part);
int cb_trials_open(struct trials *t, struct calibrate *c); /* makes the items */
void cb_trials_close(struct trials *t);
/* Feeds texts and items to the probe, the last n_step tokens of each one by one. */
int cb_trials_probe(struct trials *t, struct calibrate *c, const struct probe *p, int n_step);
int cb_trials_run(struct trials *t, struct calibrate *c, const char *const *policy, int n,
                  int n_step);
/* The first candidate that keeps enough of the full cache's answers (or of its tokens, if it has no
 * right answers and by_token is set); if none does, the one that keeps most. */
int cb_trials_choose(const struct trials *t);
json_t *cb_trials_row(const struct trials *t, int i);
void cb_trials_print(const struct trials *t, int i); /* "held | same | KLD | read" */
void cb_trials_made(const struct trials *t, int chosen, json_t **made);

#endif
