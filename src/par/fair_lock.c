/* SPDX-License-Identifier: MIT */
/* fair_lock.c - tickets in front of a condition variable. A mutex alone goes to a thread that is
 * awake: usually the one that has just released it. */
#include "fair_lock.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"

struct fair_lock {
    pthread_mutex_t mutex;
    pthread_cond_t given;
    uint64_t next, now; /* next: the next ticket to hand out; now: the ticket that holds the lock or
                           may take it */
    pthread_t holder;
    int held;
};

int cb_fair_lock_new(struct fair_lock **out)
{
    struct fair_lock *l = cb_calloc(1, sizeof *l);

    if (!l)
        return CB_ENOMEM;
    if (pthread_mutex_init(&l->mutex, NULL)) {
        free(l);
        return cb_fail(CB_ENOMEM, "threads: no lock");
    }
    if (pthread_cond_init(&l->given, NULL)) {
        pthread_mutex_destroy(&l->mutex);
        free(l);
        return cb_fail(CB_ENOMEM, "threads: no lock");
    }
    *out = l;
    return CB_OK;
}

void cb_fair_lock_free(struct fair_lock *l)
{
    if (!l)
        return;
    pthread_cond_destroy(&l->given);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

int cb_fair_lock_take(struct fair_lock *l)
{
    int took = 0;

    pthread_mutex_lock(&l->mutex);
    if (!l->held || !pthread_equal(l->holder, pthread_self())) {
        const uint64_t ticket = l->next++;
        while (l->now != ticket)
            pthread_cond_wait(&l->given, &l->mutex);
        l->holder = pthread_self();
        l->held = took = 1;
    }
    pthread_mutex_unlock(&l->mutex);
    return took;
}

void cb_fair_lock_give(struct fair_lock *l)
{
    pthread_mutex_lock(&l->mutex);
    l->held = 0;
    l->now++;
    if (l->now != l->next)
        pthread_cond_broadcast(&l->given);
    pthread_mutex_unlock(&l->mutex);
}

int cb_fair_lock_is_mine(struct fair_lock *l)
{
    int mine;

    pthread_mutex_lock(&l->mutex);
    mine = !l->next || (l->held && pthread_equal(l->holder, pthread_self()));
    pthread_mutex_unlock(&l->mutex);
    return mine;
}
