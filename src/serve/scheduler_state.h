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

/* ---- admission: called by the engine's thread, which does not hold the lock ---- */

/* Takes orders into the queue; waits if there is no work. 0: the end. */
int cb_scheduler_receive(struct scheduler *s);
/* Ends the jobs whose clients have gone. */
void cb_scheduler_drop_cancelled(struct scheduler *s);
/* Gives slots to jobs, in the order of their turns. */
void cb_scheduler_admit(struct scheduler *s);
/* Begins to feed the job's prompt up to its token n. */
int cb_scheduler_feed(struct job *j, struct slot *at, int n);
/* Is a place after n_read new tokens of a prompt worth a copy, since the session could not come
 * back to it later, or would compute tokens once more? */
int cb_scheduler_wants_place(const struct slot *at, int n_read);
/* Ends the slot's job. trusted: the session's tokens are what the job says, and may be used again
 */
void cb_scheduler_finish(struct scheduler *s, struct slot *at, int trusted);
/* Ends the slot's job with cb_error(). */
void cb_scheduler_fail(struct scheduler *s, struct slot *at, int status);

/* ---- rounds ---- */

/* The thread: each round takes orders, decodes a token of each answer, and reads prompts. */
void *cb_scheduler_engine(void *scheduler);

#endif
