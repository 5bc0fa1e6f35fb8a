/* SPDX-License-Identifier: MIT */
/* calibrate_trial.h - tries the candidates of an analysis on its texts and on generated needle
 * items. */
#ifndef CALIBRATE_TRIAL_H
#define CALIBRATE_TRIAL_H

#include "calibrate.h"
#include "calibrate/trial.h"
#include "eval/gen.h"

/* What a candidate must keep of the full cache; choices of --rule */
enum trial_rule {
    KEEP_TOKENS,  /* predictions: the likeliest next token */
    KEEP_ANSWERS, /* right answers to the items */
    KEEP_GRID     /* right answers to needles at lengths and depths (Zhang et al. 2024, 6.1) */
};

struct trials {
    struct trial t;
    struct haystack hay;
    struct item_list probe, items; /* different ones: to measure with, to try on */
    enum trial_rule rule;
    double keep; /* the share that must be kept */
};

/* --budget, or 1/part of the context */
int cb_trials_budget(const struct calibrate *c, int part);
/* Makes the items. usual: the rule without --rule */
int cb_trials_open(struct trials *t, struct calibrate *c, enum trial_rule usual);
void cb_trials_close(struct trials *t);
/* Feeds texts and items to the probe, the last n_step tokens of each one by one. */
int cb_trials_probe(struct trials *t, struct calibrate *c, const struct probe *p, int n_step);
int cb_trials_run(struct trials *t, struct calibrate *c, const char *const *policy, int n,
                  int n_step);
/* The first of the first n candidates that keeps enough; if none does, the one that keeps most. */
int cb_trials_choose(const struct trials *t, int n);
/* "chosen", with a word more if it does not keep enough; "" for the others */
const char *cb_trials_mark(const struct trials *t, int i, int chosen);
json_t *cb_trials_row(const struct trials *t, int i);
void cb_trials_print(const struct trials *t, int i); /* "held | same | KLD | read" */
void cb_trials_made(const struct trials *t, int chosen, json_t **made);

#endif
