/* SPDX-License-Identifier: MIT */
/* default_threads.h - how many threads compute where no option says so. */
#ifndef DEFAULT_THREADS_H
#define DEFAULT_THREADS_H

#include "bench/thread_choice.h"
#include "options/opts.h"

/* As struct cb_model_params has them */
struct thread_numbers {
    int token, prompt;
};

/* n_threads: of --threads or what stands for it; 0: the default. The first call on a machine that
 * leaves a choice measures for a fraction of a second. */
struct thread_numbers cb_threads_of(const struct opts *o, int n_threads);
/* The default and how it was found, whatever --threads says */
void cb_threads_default(const struct opts *o, struct thread_choice *out);

#endif
