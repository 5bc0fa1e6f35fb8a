/* SPDX-License-Identifier: MIT */
/* jobs.h - orders to a scheduler, and what a session alone makes of them. */
#ifndef KIT_JOBS_H
#define KIT_JOBS_H

#include <pthread.h>

#include "serve/scheduler.h"

enum { JOBS_CTX = 400 }; /* context of all sessions */

/* The model that jobs are given to, on two threads */
cb_model *cb_jobs_model(void);

/* The prompt ids[n], n_out tokens without an end of the model's own, seed 7 */
struct job_order cb_jobs_order(const int32_t *ids, int n, int n_out);
/* draft: tokens a draft, of answers that are written alone */
struct scheduler *cb_jobs_scheduler(cb_model *model, int n_slot, int most_waiting,
                                    uint64_t most_bytes, int draft);
void cb_jobs_close(struct scheduler *s);
struct job_group *cb_jobs_put(struct scheduler *s, const struct job_order *o, int n);
/* Waits for all jobs of g; the text of each -> text[], which may be NULL. */
void cb_jobs_finish(struct scheduler *s, struct job_group *g, struct buf *text);
void cb_jobs_expect_end(const struct job *j, const char *reason);
/* What a session alone makes of the order: answer i's tokens -> out[max_tokens] */
void cb_jobs_alone(cb_model *model, const struct job_order *o, int i, int32_t *out);
void cb_jobs_expect_tokens(cb_model *model, const struct job_group *g, const struct job_order *o);

/* While it is closed, another thread has the model, so the engine computes nothing and no job
 * ends. */
struct gate {
    cb_model *model;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int held, open;
};

void cb_gate_close(struct gate *g, cb_model *model);
void cb_gate_open(struct gate *g);

#endif
