/* SPDX-License-Identifier: MIT */
/* scheduler.h - one thread that owns all sessions and gives each job its turn: it admits jobs,
 * takes one token of each answer through the layers together, and reads prompts in steps between.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "job.h"
#include "session_pool.h"

struct scheduler_params {
    struct session_pool_params slots;
    int most_waiting;        /* jobs; more are refused */
    int n_tenant;            /* orders name one below it */
    int draft;               /* tokens, in answers that are written alone; 0 = no drafts */
    cb_session *drafter;     /* of a draft model, for the engine's use alone; or NULL */
    double decode_latency_s; /* longest time between two tokens of an answer while prompts are read;
                                a prompt takes at least one step */
};

struct scheduler;

int cb_scheduler_open(const struct scheduler_params *p, struct scheduler **out);
/* Orders no more. Jobs that are under way have grace_s seconds to end, then they are cancelled. */
void cb_scheduler_stop(struct scheduler *s, double grace_s);
void cb_scheduler_close(struct scheduler *s); /* after a stop, and after all groups were released */

/* ---- clients: any thread ---- */

enum order_status { ORDER_TAKEN, ORDER_TOO_MANY, ORDER_STOPPING };

/* Puts a group into the queue, which then owns it together with the client. If it is refused, the
 * client frees it with cb_group_free(). */
enum order_status cb_scheduler_order(struct scheduler *s, struct job_group *g);
/* Waits until a job of the group has something new or ended, at most timeout_s. Returns its index,
 * with what is new in job[].seen, or -1. *ended: it has ended and everything was seen. A job that
 * ended is reported once. */
int cb_scheduler_wait(struct scheduler *s, struct job_group *g, double timeout_s, int *ended);
/* 1: a job of the group has been admitted or has ended. */
int cb_scheduler_began(struct scheduler *s, struct job_group *g, double timeout_s);
/* The end of a job of the group that has ended with an error; NULL: none has */
const struct job_end *cb_scheduler_failure(struct scheduler *s, struct job_group *g);
/* The client wants no more of it: jobs that have not ended are cancelled. */
void cb_scheduler_release(struct scheduler *s, struct job_group *g);

/* ---- what is going on ---- */

int cb_scheduler_is_over(struct scheduler *s); /* 1: all that is under way is to end at once */

enum { CB_BUCKETS = 14 }; /* of a histogram of seconds: 1 ms, 2 ms, 5 ms ... 10 s, 20 s, more */
extern const double cb_bucket_s[CB_BUCKETS - 1];

struct histogram {
    uint64_t count[CB_BUCKETS], n;
    double sum;
};

struct scheduler_stats {
    uint64_t ordered, refused, ended[4]; /* by reason: stop, length, cancelled, error */
    uint64_t prompt_tokens, cached_tokens, made_tokens; /* cached: not counted in prompt_tokens */
    uint64_t hit_tokens, saved_tokens, save_failures;   /* of the folder that remembers prompts */
    uint64_t drafted, accepted;                         /* tokens of drafts */
    uint64_t batches, batched;                          /* decoding steps, and tokens in them */
    uint64_t read_bytes;                                /* of keys and values, by decoded tokens */
    uint64_t bank_bytes;                                /* held now */
    double prompt_s, decode_s;                          /* spent by the engine */
    int waiting, reading, writing;                      /* jobs now */
    struct histogram first_token, between;              /* seconds: since the order; between two */
};

struct slot_view {
    int open, working; /* has it a session, a job? */
    enum job_state state;
    int n_tokens; /* in the timeline */
    int n_prompt, n_made;
    double read;       /* how much of the prompt has been read: 0 to 1 */
    uint64_t kv_bytes; /* of keys and values */
    char policy[64];
};

void cb_scheduler_stats(struct scheduler *s, struct scheduler_stats *out);
/* What the slots do, as of the last turn; view[slots.n]. */
void cb_scheduler_views(struct scheduler *s, struct slot_view *view);
const struct scheduler_params *cb_scheduler_params(const struct scheduler *s);

#endif
