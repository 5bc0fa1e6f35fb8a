/* SPDX-License-Identifier: MIT */
/* calibrate.h - what the analyses of calibrate share: a model, samples of text, a preset to write.
 */
#ifndef CALIBRATE_H
#define CALIBRATE_H

#include "calibrate/probe.h"
#include "calibrate/sample.h"
#include "cmd.h"

struct calibrate {
    const struct opts *o;
    struct engine e;
    struct samples samples;
    int n_ctx;
    struct progress bar;
    struct cb_prefill how; /* shows the bar, stops when interrupted */
    int64_t done, total;   /* tokens that are fed */
    json_t *made;          /* how: into the preset */
};

/* The model, and samples of at least `least` tokens. */
int cb_calibrate_open(const struct opts *o, struct calibrate *c, int least);
void cb_calibrate_close(struct calibrate *c);
/* Feeds the samples, the last n_step tokens of each one by one, to a probe. `more`: tokens that
 * will be fed after it, for the bar. */
int cb_calibrate_probe(struct calibrate *c, const struct probe *p, int n_step, int64_t more);
void cb_calibrate_fed(struct calibrate *c, int64_t n); /* the bar goes on */

/* Takes over `values`. With -o writes the preset: method, model, the values, how it was made.
 * Prints with
 * --json that and `rows` (taken over as well). options: what the policy needs besides, "" or
 * "key=value," */
int cb_calibrate_save(struct calibrate *c, const char *method, const char *options, json_t *values,
                      json_t *rows);
json_t *cb_calibrate_list(const double *x, int n);
/* From a command's run(): opens, works, closes; an exit status. */
int cb_calibrate_run(const struct opts *o, int least, int (*work)(struct calibrate *c));

#endif
