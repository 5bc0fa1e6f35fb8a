/* SPDX-License-Identifier: MIT */
/* completion.h - a request that makes the model write: its order, its answers as they come, and the
 * dialect in which the client is told. */
#ifndef COMPLETION_H
#define COMPLETION_H

#include "exchange.h"
#include "reply.h"

enum { CB_COMPLETION_CHOICES = 16, CB_COMPLETION_STOPS = 1024 };

struct completion;

/* What the model has written in one of n answers */
struct choice {
    struct completion *turn;
    int index;
    struct reply reply;
    struct buf all, text, thought;
    json_t *calls;    /* {id, name, arguments}; the last one may have no arguments yet */
    struct buf args;  /* of the last call, so far */
    int drops;        /* 1: the call under way is one too many */
    int open_call;    /* 1: the last call ended with the answer, not by itself */
    json_t *logprobs; /* of tokens that the client was not told of, or NULL */
    struct buf *out;  /* of the current piece, in a stream */
    const struct job *job;
};

/* How answers are told. In a stream, each function appends events; NULL: nothing to say. */
struct dialect {
    const char *stream_type; /* NULL = server-sent events */
    void (*begin)(struct completion *t, struct buf *out);
    void (*text)(struct choice *c, const char *s, size_t n);
    void (*thought)(struct choice *c, const char *s, size_t n);
    void (*call)(struct choice *c, const json_t *call); /* begins, without arguments */
    void (*args)(struct choice *c, const json_t *call, const char *s, size_t n);
    void (*end_call)(struct choice *c, const json_t *call);
    void (*end_choice)(struct choice *c);
    void (*end)(struct completion *t, struct buf *out);
    void (*error)(struct completion *t, const char *message, struct buf *out);
    void (*idle)(struct buf *out);          /* keeps a silent stream open; NULL: it stays silent */
    json_t *(*whole)(struct completion *t); /* the answer of a request that is no stream */
    const char *call_prefix;                /* of the ids of calls */
};

struct completion {
    struct stream stream; /* the first field: a stream is its turn */
    struct server *s;
    struct exchange *x;
    const struct dialect *d;
    int (*gone)(void *arg);
    void *gone_arg;
    /* the order */
    struct job_order order;
    const char **stop; /* texts of the request */
    struct logit_bias *bias;
    int32_t *ids;
    char *text;          /* of a conversation, to be remembered; or NULL */
    cb_grammar *grammar; /* of the answers, until they are ordered; or NULL */
    int n;
    enum reply_begin begin; /* where in an answer the prompt ends */
    json_t *tools;          /* that the model was told of, or NULL */
    json_t *ignored;        /* notes of what of the request was left out, or NULL */
    int one_call;           /* 1: calls after the first are left out */
    int streams, include_usage;
    json_t *request;
    /* what comes */
    struct id_source names;
    char id[64];
    struct job_group *group;
    struct choice choice[CB_COMPLETION_CHOICES];
    int n_ended, began;
    int broken;             /* 1: its stream has ended with an error */
    struct job_end refused; /* status != 0: why there is no answer, beside what its jobs say */
    size_t piece;           /* bytes held for the last piece of a stream */
    double told;            /* when the client last got something */
    void (*free_state)(void *state); /* NULL = free() */
    void *state;                     /* of the dialect, freed with the turn */
};

/* A turn for the request, with the fields that all dialects share: sampling, limits, policy. */
int cb_completion_new(struct exchange *x, const struct dialect *d, struct completion **out);
void cb_completion_free(struct completion *t);
/* There is no answer: cb_error() says why. For a dialect's whole(). */
void cb_completion_refuse(struct completion *t, int status);
/* t->n empty answers; CB_ENOMEM */
int cb_choices_open(struct completion *t);
/* Takes what is new in job i; ended: it makes nothing more. out: the stream's piece, NULL for an
 * answer at once. A failure is t->refused. */
void cb_choice_take_news(struct completion *t, int i, int ended, struct buf *out);
/* Gives x its answer, whole or as a stream, and frees the turn. */
void cb_completion_run(struct completion *t, struct exchange *x);
/* Call when turns of n_tok prompt tokens in all have started: gives back what reading the request
 * held beyond its values, ids and text, which are still there. */
void cb_completion_was_read(struct exchange *x, int n_tok);
/* Its parts, for a request with several turns: each returns 0 if x has an error in place of the
 * answer, and never frees the turn. Orders the answers; waits for all of them; or makes t->stream
 * ready. */
int cb_completion_start(struct completion *t, struct exchange *x);
int cb_completion_finish(struct completion *t, struct exchange *x);
int cb_completion_open_stream(struct completion *t, struct exchange *x);

/* Numbers of the answer: */
int cb_completion_prompt_tokens(const struct completion *t);
int cb_completion_cached_tokens(const struct completion *t);
int cb_completion_made_tokens(const struct completion *t); /* of all choices */
int cb_completion_thought_tokens(
    const struct completion *t);                      /* of the thoughts in them, or nearly */
int cb_choice_is_cut(const struct choice *c);         /* 1: max_tokens ended it */
int cb_choice_cut_in_thought(const struct choice *c); /* ... before its text */
json_t *cb_completion_timings(const struct completion *t); /* of the first choice */
json_t *cb_completion_memory(const struct completion *t);
/* For a whole answer: stands for the call's arguments, which the answer has as they were written.
 * Arguments that are no object become {"raw_arguments": TEXT}. */
json_t *cb_completion_written(const json_t *call);
/* Puts the call's arguments in the place that stands for them, if *out has it. Failures are
 * out's. */
void cb_completion_put_arguments(struct buf *out, const json_t *call);
/* A token as "logprobs" tells it: {token, bytes, logprob} */
json_t *cb_completion_token(const struct completion *t, const struct token_logprob *p);

#endif
