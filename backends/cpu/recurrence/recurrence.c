/* SPDX-License-Identifier: MIT */
/* recurrence.c - layers that remember without keys: threads share channels, tokens, or heads and
 * strips of their states. No item's sums depend on another's. */
#include "device/recurrence.h"

#include "cpu/kern.h"
#include "cpu/vector/kern_vec.h"

enum {
    CONV_PIECE = 256,      /* channels an item */
    DECAY_PIECE = 1 << 12, /* numbers an item */
    STRIPS = 4             /* strips of a state an item */
};

struct conv_job {
    const struct kern_recurrence *k;
    const struct short_conv *c;
    int pieces; /* a call; all have as many channels */
};

static void conv_piece(void *ctx, int i, int thread)
{
    const struct conv_job *job = ctx;
    const struct short_conv *c = &job->c[i / job->pieces];
    const int from = i % job->pieces * CONV_PIECE, left = c->n - from;

    (void)thread;
    job->k->conv(c, from, left < CONV_PIECE ? left : CONV_PIECE);
}

void cb_cpu_short_conv(struct device *d, const struct short_conv *c, int n)
{
    struct conv_job job = { .k = cb_cpu_vec(d)->recurrence, .c = c };

    if (n < 1)
        return;
    job.pieces = (c->n + CONV_PIECE - 1) / CONV_PIECE;
    cb_par_for(d->par, n * job.pieces, conv_piece, &job);
}

struct decay_job {
    const struct kern_recurrence *k;
    const struct decays *x;
    int tokens; /* an item */
};

static void decay_piece(void *ctx, int i, int thread)
{
    const struct decay_job *job = ctx;
    const int from = i * job->tokens, left = job->x->n_tok - from;

    (void)thread;
    job->k->decays(job->x, from, left < job->tokens ? left : job->tokens);
}

void cb_cpu_decays(struct device *d, const struct decays *x)
{
    const int tokens = x->n < DECAY_PIECE ? DECAY_PIECE / (x->n > 0 ? x->n : 1) : 1;
    struct decay_job job = { cb_cpu_vec(d)->recurrence, x, tokens };

    cb_par_for(d->par, (x->n_tok + tokens - 1) / tokens, decay_piece, &job);
}

struct state_job {
    const struct kern_recurrence *k;
    const struct recurrence *r;
    int pieces; /* of a head; all calls have heads of one shape */
};

static void state_piece(void *ctx, int i, int thread)
{
    const struct state_job *job = ctx;
    const int a_call = job->r->n_head * job->pieces, at = i % a_call;
    const int from = at % job->pieces * STRIPS, left = cb_state_strips(job->r->dv) - from;

    (void)thread;
    job->k->strips(&job->r[i / a_call], at / job->pieces, from, left < STRIPS ? left : STRIPS);
}

void cb_cpu_recurrence(struct device *d, const struct recurrence *r, int n)
{
    struct state_job job = { .k = cb_cpu_vec(d)->recurrence, .r = r };

    if (n < 1)
        return;
    job.pieces = (cb_state_strips(r->dv) + STRIPS - 1) / STRIPS;
    cb_par_for(d->par, n * r->n_head * job.pieces, state_piece, &job);
}
