/* SPDX-License-Identifier: MIT */
/* session_state.c - all that a session remembers, as plain data. */
#include "session_state.h"

#include "attention/attend.h"
#include "base/err.h"

/* ---- counts ---- */

enum { C_SEEN, C_PROMPT_END, C_DECODING, C_MOST, N_SESSION };

int cb_session_n_counts(const struct cb_session *s)
{
    int n = N_SESSION;

    for (int l = 0; l < s->bank.n_layer; l++)
        n += cb_store_n_counts(&s->bank.store[l]) + cb_attention_counts(&s->attention, l, NULL);
    return n + cb_states_n_counts(&s->bank.states);
}

static void timeline_counts(const struct cb_session *s, int32_t out[N_SESSION])
{
    out[C_SEEN] = s->bank.n_seen;
    out[C_PROMPT_END] = s->bank.prompt_end;
    out[C_DECODING] = s->bank.decoding;
    out[C_MOST] = s->bank.n_most;
}

void cb_session_counts(const struct cb_session *s, int32_t *out)
{
    timeline_counts(s, out);
    out += N_SESSION;
    for (int l = 0; l < s->bank.n_layer; l++) {
        cb_store_counts(&s->bank.store[l], out);
        out += cb_store_n_counts(&s->bank.store[l]);
        out += cb_attention_counts(&s->attention, l, out);
    }
    cb_states_counts(&s->bank.states, out);
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

int cb_session_adopt_timeline(struct cb_session *s, const struct cb_session *from)
{
    int32_t c[N_SESSION];

    timeline_counts(from, c);
    return set_session(s, c);
}

static int set_counts(struct cb_session *s, const int32_t *counts)
{
    TRY(set_session(s, counts));
    counts += N_SESSION;
    for (int l = 0; l < s->bank.n_layer; l++) {
        TRY(cb_store_set_counts(&s->bank.store[l], s->dev, counts));
        counts += cb_store_n_counts(&s->bank.store[l]);
        TRY(cb_attention_set_counts(&s->attention, l, counts));
        counts += cb_attention_counts(&s->attention, l, NULL);
    }
    return cb_states_set_counts(&s->bank.states, counts, s->bank.n_seen);
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
    int n = s->bank.n_layer + 6 + s->bank.states.n;

    for (int l = 0; l < s->bank.n_layer; l++)
        n += cb_store_most_areas(&s->bank.store[l]) + cb_attention_areas(&s->attention, l, NULL);
    return n;
}

/* What layers without keys remember, and which tokens were decoded: a cut feeds some again. */
static int state_areas(const struct cb_session *s, struct area *a)
{
    if (!cb_states_is(&s->bank.states) || !s->bank.n_seen)
        return 0;
    *a = (struct area){ AREA_DECODED, 0, 0, 0, s->decoded, (size_t)s->bank.n_seen };
    return 1 + cb_states_areas(&s->bank.states, a + 1);
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

    if (cb_area_is_readers(a->kind))
        bytes = cb_attention_area_of(&s->attention, a, n);
    return bytes < a->bytes ? bytes : a->bytes;
}

int cb_session_area_strips(const struct cb_session *s, const struct area *a)
{
    return cb_area_is_readers(a->kind) ? cb_attention_area_strips(&s->attention, a) : 0;
}

void cb_session_wrote(const struct cb_session *s, const struct area *a, int n)
{
    const struct device_memory *m = s->dev->ops->memory;
    const int locked = cb_device_lock_memory(s->dev);

    for (int i = 0; m && i < n; i++)
        if (cb_area_is_rows(a[i].kind))
            m->wrote(s->dev, a[i].at, a[i].bytes);
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

/* ---- which tokens are kept ---- */

int cb_session_kept(const cb_session *s, int layer, int head, int32_t *pos, int cap)
{
    const struct store *st;

    if (layer < 0 || layer >= s->model->hp.n_layer)
        return cb_fail(CB_EARG, "layer: %d is not between 0 and %d", layer,
                       s->model->hp.n_layer - 1);
    layer = cb_attention_owner(&s->attention, layer);
    if (layer < 0)
        return cb_fail(CB_EUNSUPPORTED, "kept: the model reads keys of another one");
    st = &s->bank.store[layer];
    if (head < 0 || head >= s->model->layer[layer].n_kv)
        return cb_fail(CB_EARG, "head: layer %d has %d KV heads, so there is no %d", layer,
                       s->model->layer[layer].n_kv, head);
    if (cb_context_split_deals(&s->attention, layer))
        return cb_fail(CB_EUNSUPPORTED, "kept: the tokens are dealt out to several processes");
    for (int i = 0; i < st->n[head] && i < cap; i++)
        pos[i] = cb_store_pos(st, head, i);
    return st->n[head];
}
