/* SPDX-License-Identifier: MIT */
/* job.h - one answer: what was ordered, the tokens and the text as they come, the end. A group is
 * the answers of one request. Knows neither sessions nor threads: who may touch what is said at the
 * fields, and the scheduler's lock guards what two threads touch. */
#ifndef JOB_H
#define JOB_H

#include <pthread.h>

#include "base/buf.h"
#include "ctxbank.h"
#include "logprobs.h"

struct logit_bias {
    int32_t id;
    float add; /* -INFINITY: never */
};

struct job_order {
    const int32_t *ids; /* [n] the prompt, n >= 1 */
    int n;
    int parting;    /* tokens before the last message, where other questions may part; 0 = none */
    int max_tokens; /* -1 = until the model ends or the context is full */
    struct cb_sampler_params sampler;
    const struct logit_bias *bias; /* [n_bias] */
    int n_bias;
    const char *policy, *prefill; /* NULL = the server's */
    const char *const *stop;      /* [n_stop] */
    int n_stop;
    cb_grammar *grammar; /* NULL = none. The group's from cb_group_new() on, which frees it
                            also when it fails */
    const int32_t
        *shown; /* [n_shown] special tokens whose names are text; they outlive the group */
    int n_shown;
    int ignore_end; /* 1: tokens that end a turn are never sampled */
    int logprobs;   /* -1 = none, else how many of the likeliest tokens beside the sampled one */
    int no_cache;   /* 1: no session that is kept is used */
    int keep;       /* 1: its session is to serve others: it is copied, and dropped last */
    int tenant;     /* whose turn it is is counted by tenant */
};

enum job_state { JOB_WAITS, JOB_READS, JOB_WRITES, JOB_ENDED };

struct job_times {
    double ordered, admitted, read, first, ended; /* seconds of the monotonic clock; 0 = not yet */
};

struct job_end {
    const char *reason; /* "stop", "length", "cancelled", "error" */
    int stop;           /* index of the stop text that ended it, or -1 */
    int status;         /* of an error, and its text */
    char error[512];
    struct cb_memory memory; /* of the session, when the job ended */
    struct cb_speculation_counts drafts;
};

/* What the client has not seen yet */
struct job_news {
    struct buf text;
    struct job_token *token; /* [n_token], of a job that wants logprobs */
    int n_token;
};

struct job {
    struct job_group *group;
    int index; /* in the group */
    /* under the lock */
    enum job_state state;
    struct job_news fresh;
    int n_cached, n_out; /* tokens of the prompt that a kept session had; generated tokens */
    int n_remembered;    /* tokens that a folder had: they count as cached too */
    struct job_times times;
    struct job_end end; /* the client may read it without the lock once the job has ended */
    /* the client's alone */
    struct job_news seen;
    int told; /* the end was reported */
    /* the engine's alone, until the job has ended */
    struct job_news made;
    struct buf held; /* text that may be the beginning of a stop text */
    cb_sampler *sampler;
    cb_detokenizer *detok;
    float *biased; /* [n_vocab], or NULL */
    int32_t *out;  /* [n_out] */
    int n_made;
    double turn;         /* order of admission */
    double read;         /* how much of the prompt has been read: 0 to 1 */
    int n_fed, n_before; /* the feed under way ends there; tokens read by the one before */
    int n_put;           /* tokens of the prompt that the folder got while it was read */
    int parts;           /* 1: its session went back to where its prompt parts from another */
    int looked;          /* what a folder remembers was looked up */
    int patient, awaits; /* may it wait for a prompt that begins alike; does it? */
    struct job *next;
};

struct job_group {
    struct job_order order; /* with lists of its own */
    pthread_cond_t changed; /* with the scheduler's lock */
    int cancelled;          /* under the lock */
    int n_left;             /* under the lock: jobs that have not ended, and 1 for the client */
    int n;
    struct job job[]; /* [n] */
};

/* n answers to one order; answer i has the seed + i. CB_EARG: the sampler's params, a list. */
int cb_group_new(cb_model *model, const struct job_order *order, int n, struct job_group **out);
void cb_group_free(struct job_group *g);

/* ---- the engine's side ---- */

/* Samples a token from logits[n_vocab] and takes its text. 1: continue with *id; 0: the job ends,
 * with end.reason set, and *id was not wanted. */
int cb_job_sample(struct job *j, cb_model *model, const float *logits, int32_t *id);
/* Moves what was made to where the client sees it; under the lock. */
void cb_job_publish(struct job *j);
/* Notes the last failure of this thread as the job's end. */
void cb_job_fail(struct job *j, int status);

/* ---- the client's side ---- */

/* Moves what is fresh to `seen`, which it replaces; under the lock. 1: there is something. */
int cb_job_take(struct job *j);

#endif
