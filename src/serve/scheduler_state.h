/* SPDX-License-Identifier: MIT */
/* scheduler_state.h - what the engine and the clients of a scheduler share. */
#ifndef SCHEDULER_STATE_H
#define SCHEDULER_STATE_H

#include "scheduler.h"

struct scheduler {
    struct scheduler_params p;
    pthread_t thread;
    /* ---- under the lock ---- */
    pthread_mutex_t lock;
    pthread_cond_t work, over; /* there are orders; the thread has ended */
    int has_ended;
    struct job *inbox;
    int stopping; /* 1: no more orders; 2: what runs is cancelled */
    struct scheduler_stats stats;
    struct slot_view *view; /* [slots.n] */
    /* ---- the engine's ---- */
    struct session_pool slots;
    struct job *waiting; /* in the order of their turns */
    double *used;        /* [n_tenant] turns that each tenant has used */
    double turn;         /* of the job that was admitted last */
    int look;            /* 1: something has changed, so a job that waits may be admitted */
    int n_step;          /* steps of prompts so far */
    double step_s;       /* how long the last one took */
    double wrote_at;     /* when the last batch ended; 0: no answer was under way */
    /* a batch: [slots.n] */
    struct slot **batch;
    cb_session **session;
    int32_t *token;
};

#endif
