/* SPDX-License-Identifier: MIT */
/* grammar_budget.c - counts what reading a grammar takes. */
#include "grammar_budget.h"

#include <time.h>

#include "base/array.h"
#include "base/err.h"

enum { LOOK_EVERY = 1 << 14, HOLD_PIECE = 64 << 10 };

/* The processor's time of this thread, so that a busy machine refuses no more than an idle one */
static double used_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void cb_budget_open(struct budget *b, const struct grammar_limits *limits)
{
    static const struct grammar_limits most = { .memory_bytes = (size_t)256 << 20,
                                                .steps = 1 << 25,
                                                .seconds = 5 };

    *b = (struct budget){ .most = limits ? *limits : most, .look_at = LOOK_EVERY };
    if (!b->most.memory_bytes)
        b->most.memory_bytes = most.memory_bytes;
    if (!b->most.steps)
        b->most.steps = most.steps;
    if (b->most.seconds <= 0)
        b->most.seconds = most.seconds;
    b->until_s = used_s() + b->most.seconds;
}

static int look(struct budget *b)
{
    if (b->steps > b->most.steps)
        return cb_fail(CB_EUNSUPPORTED, "grammar: reading it takes more than %lld steps",
                       (long long)b->most.steps);
    if (b->most.stop && b->most.stop(b->most.user))
        return cb_fail(CB_ECANCEL, "grammar: reading it was stopped");
    if (used_s() > b->until_s)
        return cb_fail(CB_EUNSUPPORTED, "grammar: reading it takes more than %g s",
                       b->most.seconds);
    b->look_at = b->steps + LOOK_EVERY;
    return CB_OK;
}

int cb_budget_steps(struct budget *b, size_t n)
{
    b->steps = n > (size_t)(INT64_MAX - b->steps) ? INT64_MAX : b->steps + (int64_t)n;
    return b->steps > b->most.steps || b->steps >= b->look_at ? look(b) : CB_OK;
}

static int hold(struct budget *b, size_t bytes)
{
    const size_t more = bytes > b->told ? bytes - b->told + HOLD_PIECE - 1 : 0;

    if (!b->most.hold || !more)
        return CB_OK;
    TRY(b->most.hold(b->most.user, more / HOLD_PIECE * HOLD_PIECE));
    b->told += more / HOLD_PIECE * HOLD_PIECE;
    return CB_OK;
}

int cb_budget_bytes(struct budget *b, size_t old, size_t now)
{
    if (now > old &&
        (b->bytes > b->most.memory_bytes || now - old > b->most.memory_bytes - b->bytes))
        return cb_fail(CB_EUNSUPPORTED, "grammar: it takes more than %zu bytes of memory",
                       b->most.memory_bytes);
    TRY(hold(b, b->bytes + now - old));
    b->bytes += now - old;
    return CB_OK;
}

int cb_budget_grow(struct budget *b, void **p, size_t *cap, size_t n, size_t size)
{
    const size_t want = cb_grown_cap(*cap, n);

    TRY(cb_budget_bytes(b, *cap * size, want * size));
    if (!cb_grow(p, cap, n, size))
        return CB_OK;
    cb_budget_bytes(b, want * size, *cap * size);
    return CB_ENOMEM;
}

void *cb_budget_calloc(struct budget *b, size_t n, size_t size, int *rc)
{
    void *p;

    *rc = cb_budget_bytes(b, 0, n * size);
    if (*rc)
        return NULL;
    p = cb_calloc(n, size);
    *rc = p ? CB_OK : CB_ENOMEM;
    return p;
}
