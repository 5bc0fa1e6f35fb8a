/* SPDX-License-Identifier: MIT */
/* session_pool.h - the sessions of a server: each works for a job, or is kept, since the next
 * prompt may begin as its timeline does. Used by one thread. */
#ifndef SESSION_POOL_H
#define SESSION_POOL_H

#include "job.h"

struct session_pool_params {
    cb_model *model;
    struct cb_session_params session; /* of every session; the policy and the prefill by default */
    int n;
    uint64_t most_bytes; /* of keys and values in all sessions; 0 = no limit */
    cb_bank_dir *dir;    /* where prompts are remembered and looked up, or NULL */
};

struct slot {
    cb_session *session; /* NULL = none yet */
    char *policy, *prefill;
    struct job *job;        /* NULL = kept, or empty */
    cb_speculation *drafts; /* of the job's answer, or NULL; the timeline may include drafts */
    uint64_t reserved;      /* bytes that the job may come to need */
    int begun;              /* the order of the last jobs: larger is later */
    int keep;               /* 1: it is copied rather than used, and dropped last */
    int place;              /* 1: a copy of a place in a prompt: it is copied rather than used */
    int pure;               /* 1: nothing but the job's prompt has been fed since it was taken */
};

struct session_pool {
    struct session_pool_params p;
    struct slot *at; /* [p.n] */
    int n_begun;
};

int cb_pool_open(const struct session_pool_params *p, struct session_pool *out);
void cb_pool_close(struct session_pool *s);

/* A session for the job: *kept tokens of its prompt are in the timeline already. 1: found; 0: none
 * now, try again when another job has gone on; negative: none ever. */
int cb_pool_take(struct session_pool *s, struct job *j, struct slot **out, int *kept);
/* The job's prompt has been read, or its first part: it is remembered in the folder if there is
 * one. Returns how many tokens were new to it, or a negative status: nothing is lost. */
int cb_pool_remember(struct session_pool *s, const struct slot *at);
/* Keeps a copy of the place where `at` is in its prompt, if there is room: of a session that could
 * not come back, or would compute tokens again. last: the end of the prompt. */
void cb_pool_keep_place(struct session_pool *s, const struct slot *at, int last);
/* The same before the job's prompt is read on, and for the folder, if the session has come back to
 * where the prompt parts from an earlier one, and computed tokens again for that: other prompts may
 * part there too. */
void cb_pool_keep_parting(struct session_pool *s, const struct slot *at);
/* The job is done. The timeline is kept, unless the session cannot be trusted. */
void cb_pool_give(struct session_pool *s, struct slot *at, int trusted);
uint64_t cb_slot_bytes(const struct slot *at);        /* of keys and values that are held now */
uint64_t cb_pool_bytes(const struct session_pool *s); /* the same of all */

#endif
