/* SPDX-License-Identifier: MIT */
/* session_state.c - all that a session remembers, as plain data. */
#include "session_state.h"

#include <string.h>

#include "attention/attend.h"
#include "base/err.h"

/* ---- counts ---- */

enum { C_SEEN, C_PROMPT_END, C_DECODING, C_MOST, N_SESSION };

/* How many checkpoints there are, then where they stand */
static int n_points(const struct cb_session *s)
{
    return cb_states_is(&s->states) ? 1 + STATE_MOST_POINTS : 0;
}

static void put_points(const struct cb_session *s, int32_t *out)
{
    memset(out, 0, (size_t)n_points(s) * sizeof *out);
    if (!n_points(s))
        return;
    out[0] = s->states.n;
    for (int i = 0; i < s->states.n; i++)
        out[1 + i] = s->states.point[i].at;
}

static int set_points(struct cb_session *s, const int32_t *c)
{
    const int n = n_points(s) ? c[0] : 0;

    if (n < 0 || n > STATE_MOST_POINTS)
        return cb_fail(CB_EFORMAT, "its checkpoints contradict each other");
    for (int i = 0, last = 0; i < n; last = c[1 + i], i++)
        if (c[1 + i] <= last || c[1 + i] > s->bank.n_seen || c[1 + i] % STATE_GRID)
            return cb_fail(CB_EFORMAT, "its checkpoints contradict each other");
    for (int i = 0; i < n; i++)
        TRY(cb_states_restore(&s->states, c[1 + i]));
    return CB_OK;
}

int cb_session_n_counts(const struct cb_session *s)
{
    int n = N_SESSION;

    for (int l = 0; l < s->bank.n_layer; l++)
        n += cb_store_n_counts(&s->bank.store[l]) + cb_attention_n_counts(&s->attention, l);
    return n + n_points(s);
}

void cb_session_counts(const struct cb_session *s, int32_t *out)
{
    out[C_SEEN] = s->bank.n_seen;
    out[C_PROMPT_END] = s->bank.prompt_end;
    out[C_DECODING] = s->bank.decoding;
    out[C_MOST] = s->bank.n_most;
    out += N_SESSION;
    for (int l = 0; l < s->bank.n_layer; l++) {
        cb_store_counts(&s->bank.store[l], out);
        out += cb_store_n_counts(&s->bank.store[l]);
        cb_attention_counts(&s->attention, l, out);
        out += cb_attention_n_counts(&s->attention, l);
    }
    put_points(s, out);
}

int cb_session_counts_seen(const int32_t *counts)
{
    return counts[C_SEEN];
}

static int set_session(struct cb_session *s, const int32_t *c)
{
    if (c[C_SEEN] < 0 || c[C_PROMPT_END] < 0 || c[C_PROMPT_END] > c[C_SEEN] || c[C_MOST] < 0 ||
        (c[C_DECODING] & ~1))
        return cb_fail(CB_EFORMAT, "its counts of tokens contradict each other");
    if (c[C_MOST] > s->bank.n_ctx)
        return cb_fail(CB_EFULL, "its %d slots do not fit into a context of %d", c[C_MOST],
                       s->bank.n_ctx);
    TRY(cb_session_fit_tokens(s, c[C_SEEN]));
    s->bank.n_seen = c[C_SEEN];
    s->bank.prompt_end = c[C_PROMPT_END];
    s->bank.decoding = c[C_DECODING];
    s->bank.n_most = c[C_MOST];
    return CB_OK;
}

static int set_counts(struct cb_session *s, const int32_t *counts)
{
    TRY(set_session(s, counts));
    counts += N_SESSION;
    for (int l = 0; l < s->bank.n_layer; l++) {
        TRY(cb_store_set_counts(&s->bank.store[l], s->dev, counts));
        counts += cb_store_n_counts(&s->bank.store[l]);
        TRY(cb_attention_set_counts(&s->attention, l, counts));
        counts += cb_attention_n_counts(&s->attention, l);
    }
    return set_points(s, counts);
}

int cb_session_set_counts(struct cb_session *s, const int32_t *counts)
{
    const int locked = cb_device_lock_memory(s->dev); /* a store may ask for a mirror */
    const int err = set_counts(s, counts);

    if (locked)
        cb_device_unlock(s->dev);
    return err;
}

/* ---- areas ---- */

static int most_areas(const struct cb_session *s)
{
    int n = s->bank.n_layer + 6 + s->states.n;

    for (int l = 0; l < s->bank.n_layer; l++)
        n += cb_store_most_areas(&s->bank.store[l]) + cb_attention_most_areas(&s->attention, l);
    return n;
}

/* What layers without keys remember, its checkpoints, and which tokens were decoded */
static int state_areas(const struct cb_session *s, struct area *a)
{
    const struct states *x = &s->states;
    const size_t bytes = cb_states_bytes(x);
    int n = 0;

    if (!cb_states_is(x) || !s->bank.n_seen)
        return 0;
    a[n++] = (struct area){ AREA_DECODED, 0, 0, 0, s->decoded, (size_t)s->bank.n_seen };
    a[n++] = (struct area){ AREA_REMEMBERED, 0, 0, 0, x->now, bytes };
    for (int i = 0; i < x->n; i++)
        a[n++] = (struct area){ AREA_CHECKPOINT, 0, i, 0, x->point[i].x, bytes };
    return n;
}

int cb_session_areas(const struct cb_session *s, struct area **out, int *n)
{
    struct area *a = *out = cb_calloc((size_t)most_areas(s), sizeof *a);
    const size_t n_seen = (size_t)s->bank.n_seen, n_vocab = (size_t)s->model->hp.n_vocab;

    if (!a)
        return CB_ENOMEM;
    if (n_seen)
        *a++ = (struct area){ AREA_TOKENS, 0, 0, 0, s->token, n_seen * sizeof *s->token };
    *a++ = (struct area){ AREA_LOGITS, 0, 0, 0, s->w.logits, n_vocab * sizeof *s->w.logits };
    a += state_areas(s, a);
    a += cb_policy_areas(s->policy, a);
    for (int l = 0; l < s->bank.n_layer; l++) {
        a += cb_attention_areas(&s->attention, l, a);
        a += cb_store_areas(&s->bank.store[l], l, a);
    }
    *n = (int)(a - *out);
    return CB_OK;
}

size_t cb_session_area_of(const struct cb_session *s, const struct area *a, int n)
{
    const int is_store = a->kind < AREA_STORE_KINDS && a->kind != AREA_COUNTS;
    size_t bytes = is_store ? cb_store_area_of(&s->bank.store[a->layer], a->kind, n) : 0;

    if (a->kind == AREA_INDEX_KEYS)
        bytes = cb_attention_area_of(&s->attention, a, n);
    return bytes < a->bytes ? bytes : a->bytes;
}

void cb_session_wrote(const struct cb_session *s, const struct area *a, int n)
{
    const int locked = cb_device_lock_memory(s->dev);

    for (int i = 0; i < n; i++)
        if (cb_area_is_rows(a[i].kind) && a[i].kind != AREA_INDEX_KEYS)
            cb_store_wrote(&s->bank.store[a[i].layer], a[i].at, a[i].bytes);
    if (locked)
        cb_device_unlock(s->dev);
}

int cb_session_check_areas(const struct cb_session *s)
{
    for (int i = 0; i < s->bank.n_seen; i++)
        if (s->token[i] < 0 || s->token[i] >= s->model->hp.n_vocab)
            return cb_fail(CB_EFORMAT, "its tokens are not in the model's vocabulary");
    TRY(cb_policy_check(s->policy));
    for (int l = 0; l < s->bank.n_layer; l++) {
        TRY(cb_attention_check(&s->attention, l));
        TRY(cb_store_check_lists(&s->bank.store[l], s->bank.n_seen));
    }
    return CB_OK;
}
