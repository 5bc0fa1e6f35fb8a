/* SPDX-License-Identifier: MIT */
/* calibrate.h - shared by the analyses of calibrate: a model, samples of text, a preset to
 * write. */
#ifndef CALIBRATE_H
#define CALIBRATE_H

#include "calibrate/probe.h"
#include "calibrate/sample.h"
#include "cli/cmd.h"

struct calibrate {
    const struct opts *o;
    struct engine e;
    struct samples samples;
    int n_ctx;
    struct progress bar;
    struct cb_prefill how; /* shows the bar, stops when interrupted */
    int64_t done, total;   /* tokens fed, for the bar */
    json_t *made;          /* how the preset was made, written into it */
};

/* Feeds the samples to a probe, the last n_step tokens of each one by one. `more`: tokens that will
 * be fed afterwards, for the bar. */
int cb_calibrate_probe(struct calibrate *c, const struct probe *p, int n_step, int64_t more);
void cb_calibrate_fed(struct calibrate *c, int64_t n); /* advances the bar */

/* Takes ownership of `values` and `rows`. With -o it writes the preset: method, model, values, and
 * how it was made. With --json it prints the preset and `rows`. options: other options that the
 * policy needs, "" or "key=value,". */
int cb_calibrate_save(struct calibrate *c, const char *method, const char *options, json_t *values,
                      json_t *rows);
json_t *cb_calibrate_list(const double *x, int n);
/* Called from a command's run(): opens, calls work(), closes. Returns an exit status. */
int cb_calibrate_run(const struct opts *o, int least, int (*work)(struct calibrate *c));

#endif
