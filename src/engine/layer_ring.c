/* SPDX-License-Identifier: MIT */
/* layer_ring.c - sends rows around the ranks that have a range of layers each. */
#include "layer_ring.h"

#include "base/err.h"
#include "orders.h"

int cb_ring_is(const struct cb_session *s)
{
    return s->in_step && s->in_step->how == SPLIT_LAYERS;
}

int cb_ring_embeds(const struct cb_session *s)
{
    return !cb_ring_is(s) || !cb_ranks_me(s->in_step->team);
}

int cb_ring_ends(const struct cb_session *s)
{
    return !cb_ring_is(s) || cb_ranks_me(s->in_step->team) == cb_ranks_n(s->in_step->team) - 1;
}

int cb_ring_take(const struct cb_session *s, float *x, int n)
{
    struct ranks *team;

    if (cb_ring_embeds(s))
        return CB_OK;
    team = s->in_step->team;
    return cb_ranks_receive(team, cb_ranks_me(team) - 1, x,
                            (size_t)n * cb_stream_row(s) * sizeof *x);
}

int cb_ring_give(const struct cb_session *s, float *x, int n, int m)
{
    const size_t row = cb_stream_row(s), last = (size_t)(n - m) * row;
    const size_t bytes = (size_t)m * row * sizeof *x;
    struct ranks *team;
    int me, end;

    if (!cb_ring_is(s))
        return CB_OK;
    team = s->in_step->team;
    me = cb_ranks_me(team);
    end = cb_ranks_n(team) - 1;
    if (me == end)
        return m ? cb_ranks_send(team, 0, x + last, bytes) : CB_OK;
    TRY(cb_ranks_send(team, me + 1, x, (size_t)n * row * sizeof *x));
    return me || !m ? CB_OK : cb_ranks_receive(team, end, x + last, bytes);
}
