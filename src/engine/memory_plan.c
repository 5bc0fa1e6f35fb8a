/* SPDX-License-Identifier: MIT */
/* memory_plan.c - the plan of the memory that a session will hold. */
#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "layer_ahead.h"
#include "memory_held.h"
#include "model/head_prune.h"
#include "prompt_repeat.h"
#include "session.h"

static uint64_t max_bytes(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min_bytes(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How the working set is shared out in a prompt of n_prompt tokens, whose longest feed has n_feed.
 * A session's rows have what weights, work space and an eighth for operands leave; kv_bytes is what
 * they would like: with stream_kv, a layer's. */
static int plan_device(const struct cb_session *s, int n_prompt, int n_feed, uint64_t kv_bytes,
                       struct cb_memory *out)
{
    const struct device_traffic t = cb_device_traffic(s->dev);
    const int64_t more = cb_session_work_grows(s, n_feed);
    const uint64_t used = t.used_bytes - t.weights_bytes - t.kv_bytes + (uint64_t)more;
    uint64_t weights, ahead, taken;

    TRY(cb_layer_ahead_plan(s, n_prompt, (uint64_t)more, &weights, &ahead));
    taken = weights + used + ahead + t.limit_bytes / 8;
    out->device_limit_bytes = t.limit_bytes;
    out->device_weights_bytes = weights;
    out->device_work_bytes = used + ahead;
    out->device_kv_bytes = taken >= t.limit_bytes ? 0 : min_bytes(kv_bytes, t.limit_bytes - taken);
    return CB_OK;
}

/* The number of slots that a KV head of layer l will hold. */
static int slots_held(const struct cb_session *s, int l, int n_prompt, int n_gen)
{
    const struct method *m = s->policy->m;
    const int i = cb_policy_index(s->policy, l), n = n_prompt + n_gen;
    const int window = s->policy->row[l].window ? 0 : cb_attend_forgets(&s->attention, l);
    const int got = m->slots && i >= 0 ? m->slots(s->policy, i, n_prompt, n_gen) : n;

    if (s->model->layer[l].kv_back || !s->model->layer[l].n_kv)
        return 0;
    if (cb_attend_chunk(&s->attention, l))
        return n ? (n - 1) % window + 1 : 0;
    if (!window)
        return cb_context_split_own(&s->attention, l, got < n ? got : n);
    if (s->bank.store[l].kivi)
        return min_int(n_prompt, window - 1) + n_gen;
    return min_int(n, n_gen ? window : window - 1);
}

/* Bytes of layer l while n tokens of a prompt go through it: nothing is quantised yet. */
static uint64_t prompt_bytes(const struct cb_session *s, int l, int n)
{
    const struct store *st = &s->bank.store[l];
    const size_t slot = cb_store_slot_bytes(st) + (size_t)st->n_col * sizeof(float);
    return (uint64_t)n * (uint64_t)st->n_kv * slot;
}

/* The most that layer l takes meanwhile: it may drop slots down to n_kept within the prompt, or be
 * given only that many of its tokens. */
static uint64_t feed_bytes(const struct cb_session *s, int l, int n_prompt, int n_kept)
{
    const int few = cb_attention_narrows(&s->attention) || s->model->layer[l].kv_back;
    const int n = few ? n_kept : n_prompt;
    const int late = s->policy->row[l].window || s->model->layer[l].lends;
    const int window = late ? 0 : cb_attend_forgets(&s->attention, l);
    const int chunk = cb_attend_chunk(&s->attention, l);
    const int every = chunk ? chunk : window ? s->chunk : cb_attend_drops_every(&s->attention, l);
    const size_t pos = (size_t)s->bank.store[l].n_kv * sizeof *s->bank.store[l].pos;
    uint64_t most = 0;
    int held = 0;

    for (int i = 0, step; i < n; i += step) {
        const int left = chunk    ? 0
                         : window ? cb_attend_left(held, n_kept, 0)
                                  : min_int(held, n_kept);
        const int dropped = left < i || n < n_prompt || cb_context_split_deals(&s->attention, l);
        step = every ? min_int(every, n - i) : n;
        if (window && !few)
            step = min_int(step, cb_states_planned_room(&s->bank.states, n, i));
        held = left + step;
        most = max_bytes(most, prompt_bytes(s, l, held) + (dropped ? (uint64_t)held * pos : 0));
    }
    return most;
}

/* 1: layer l is still to be decided after a prompt, so it is not quantised */
static int waits(const struct cb_session *s, int l)
{
    return s->bank.store[l].kivi && s->policy->row[l].score.when == WHEN_STEP;
}

/* Bytes beside the slots of layer l when n_slot of n tokens are left: positions, rows, scores */
static uint64_t slots_beside(const struct cb_session *s, int l, int n_slot, int n, int mixed)
{
    const struct store *st = &s->bank.store[l];
    const int many = n_slot >= CB_STORE_MIX; /* enough slots for rows to lie in any order */
    size_t beside = (size_t)st->n_col * sizeof(float);

    if (n_slot < n)
        beside += sizeof *st->pos + (many && mixed ? sizeof *st->row : 0);
    return (uint64_t)st->n_kv * (uint64_t)n_slot * beside;
}

/* Bytes of layer l when n_slot of n tokens are left. */
static uint64_t layer_bytes(const struct cb_session *s, int l, int n_slot, int n, int mixed)
{
    return slots_beside(s, l, n_slot, n, mixed) + cb_held_heads(&s->bank.store[l], n_slot);
}

/* Sketches of all KV heads' first n slots, which are made before the slots are quantised */
static uint64_t sketches_bytes(const struct store *st, int n)
{
    return st->kivi ? (uint64_t)st->n_kv * cb_store_sketch_bytes(st, n) : 0;
}

/* Bytes that the reader of layer l lets it not hold (cb_attention_unheld_bytes) */
static uint64_t unheld(const struct cb_session *s, int l, int late, int n_prompt, int n_gen,
                       int n_slot)
{
    const struct planned p = { n_prompt, n_gen, n_slot };

    return cb_attention_unheld_bytes(&s->attention, l, late, &p);
}

/* The peak of a prefill: one full layer, and the compacted ones before it; or all layers, while
 * the prompt is repeated. */
static uint64_t prefill_peak(const struct cb_session *s, int n_prompt)
{
    const int more = cb_prompt_repeat_room(s->repeat, n_prompt);
    uint64_t before = 0, peak = 0, repeated = 0;

    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const int held = slots_held(s, l, n_prompt, 0);
        const uint64_t shared = unheld(s, l, 0, n_prompt, 0, n_prompt);
        const uint64_t more_held = cb_attention_held_bytes(&s->attention, l, n_prompt);
        peak = max_bytes(peak, before + feed_bytes(s, l, n_prompt, held) - shared + more_held +
                                   sketches_bytes(&s->bank.store[l], held));
        before += more_held;
        before += s->policy->row[l].late || s->model->layer[l].lends || waits(s, l)
                      ? prompt_bytes(s, l, n_prompt) - shared
                      : layer_bytes(s, l, held, n_prompt, 0) - shared;
        if (l)
            before -= unheld(s, l - 1, 1, n_prompt, 0, n_prompt);
        repeated += prompt_bytes(s, l, more);
    }
    return more ? max_bytes(before + repeated, peak) : peak;
}

/* Layer l holds fewer slots after a prompt and n_gen tokens than it was given. */
static int evicts(const struct cb_session *s, int l, int n_prompt, int n_gen)
{
    return !cb_attend_chunk(&s->attention, l) && !cb_context_split_deals(&s->attention, l) &&
           slots_held(s, l, n_prompt, n_gen) < slots_held(s, l, n_prompt, 0) + n_gen;
}

/* The last of n_gen tokens at which layer l dropped slots, and how many; 0: none did */
static int last_drop(const struct cb_session *s, int l, int n_prompt, int n_gen, int *n_gone)
{
    *n_gone = 0;
    for (int g = evicts(s, l, n_prompt, n_gen) ? n_gen : 0; g > 0; g--) {
        *n_gone = slots_held(s, l, n_prompt, g - 1) + 1 - slots_held(s, l, n_prompt, g);
        if (*n_gone > 0)
            return g;
    }
    return 0;
}

/* Rows of layer l lie in any order, if it drops few slots at a time (cb_store_keep). */
static int mixes(const struct cb_session *s, int l, int n_prompt, int n_gen)
{
    int gone;

    return last_drop(s, l, n_prompt, n_gen, &gone) &&
           gone <= slots_held(s, l, n_prompt, n_gen) / CB_STORE_MIX;
}

/* Bytes of layer l after a prompt and n_gen tokens */
static uint64_t held_bytes(const struct cb_session *s, int l, int n_prompt, int n_gen)
{
    const int n = n_prompt + n_gen, held = slots_held(s, l, n_prompt, n_gen);
    const uint64_t b = waits(s, l) && !n_gen
                           ? prompt_bytes(s, l, n)
                           : layer_bytes(s, l, held, n, mixes(s, l, n_prompt, n_gen));

    return b - unheld(s, l, 0, n_prompt, n_gen, held) - unheld(s, l, 1, n_prompt, n_gen, held) +
           cb_attention_held_bytes(&s->attention, l, n);
}

/* The bytes while token g goes through the last layer, which is noted before it settles, and with
 * it a pair that it ends. A window drops a slot before it adds one, if it is not quantised. */
static uint64_t token_peak(const struct cb_session *s, int n_prompt, int g)
{
    const int last = s->model->hp.n_layer - 1;
    const struct store *st = &s->bank.store[last];
    uint64_t sum = 0;

    for (int l = 0; l < last; l++)
        sum += held_bytes(s, l, n_prompt, g);
    if (last)
        sum += unheld(s, last - 1, 1, n_prompt, g, n_prompt + g) -
               unheld(s, last - 1, 1, n_prompt, g - 1, n_prompt + g);
    if (s->policy->row[last].window && !st->kivi)
        return sum + held_bytes(s, last, n_prompt, g);
    sum += held_bytes(s, last, n_prompt, g - 1) + prompt_bytes(s, last, 1) +
           cb_attention_held_bytes(&s->attention, last, n_prompt + g) -
           cb_attention_held_bytes(&s->attention, last, n_prompt + g - 1);
    if (!st->kivi && slots_held(s, last, n_prompt, g - 1) < n_prompt + g - 1)
        sum += (uint64_t)st->n_kv * sizeof *st->pos;
    return sum;
}

/* How many of the last tokens there are since a layer dropped slots, and one more, where layers
 * grow between drops; 0: none does */
static int since_drop(const struct cb_session *s, int n_prompt, int n_gen)
{
    int most = 0, gone;

    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const int g = last_drop(s, l, n_prompt, n_gen, &gone);
        const int grows = slots_held(s, l, n_prompt, n_gen) > slots_held(s, l, n_prompt, 0);
        if (g && (grows || gone > 1))
            most = max_int(most, n_gen - g + 2);
    }
    return most;
}

/* The peak of n_gen decoded tokens where bytes rise and fall, else 0. The newest slots may be
 * quantised or merged many at once, or dropped, so the largest of the last tokens counts; and
 * layers that attend within chunks hold most where a chunk ends. */
static uint64_t decoding_peak(const struct cb_session *s, int n_prompt, int n_gen)
{
    const int drop = since_drop(s, n_prompt, n_gen);
    const int k = s->bank.kivi_k.residual, v = s->bank.kivi_v.residual;
    const int period = cb_attention_period(&s->attention);
    const int span = max_int(max_int(period + 1, drop), max_int(k, v));
    const int chunk = s->model->hp.chunked ? s->model->hp.window : 0;
    const int whole = chunk ? (n_prompt + n_gen) / chunk * chunk - n_prompt : 0;
    uint64_t peak;

    if (!drop && !period && !cb_bank_has_kivi(&s->bank) && !s->model->hp.chunked)
        return 0;
    peak = whole > 0 ? token_peak(s, n_prompt, whole) : 0;
    for (int g = n_gen; g > 0 && g > n_gen - span; g--)
        peak = max_bytes(peak, token_peak(s, n_prompt, g));
    return peak;
}

static int plan_memory(const cb_session *s, int n_prompt, int n_gen, struct cb_memory *out)
{
    const int n = n_prompt + n_gen, more = cb_prompt_repeat_room(s->repeat, n_prompt);
    uint64_t peak, read, scanned, moved = 0, largest = 0;
    int reads, gone;

    if (n_prompt < 0 || n_gen < 0 || n_prompt > s->n_ctx || n_gen > INT32_MAX - n_prompt)
        return cb_fail(CB_EFULL, "context: %d + %d tokens do not fit into %d", n_prompt, n_gen,
                       s->n_ctx);
    *out = (struct cb_memory){
        .weights_bytes = cb_held_weights(s),
        .head_prune_bytes = cb_head_prune_bytes(s->model->head_prune),
        .shared_bytes = cb_held_weights(s) + s->device_bytes,
        .kv_full_bytes = cb_held_full(s, n),
        .kept_min = n,
        .at_most = s->policy->at_most,
        .state_bytes = 2 * cb_states_bytes(&s->bank.states),
        .checkpoint_bytes = cb_states_planned(&s->bank.states, n_prompt, n_gen),
    };
    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const int of = cb_attention_owner(&s->attention, l); /* whose slots it reads */
        const int held = slots_held(s, l, n_prompt, n_gen),
                  have = of < 0 ? 0 : slots_held(s, of, n_prompt, n_gen);
        if (held > s->n_ctx || (cb_context_split_deals(&s->attention, l) && n > s->n_ctx))
            return cb_fail(CB_EFULL, "context: %d + %d tokens do not fit into %d", n_prompt, n_gen,
                           s->n_ctx);
        if (s->model->layer[l].n_kv)
            out->kept_min = min_int(out->kept_min, have);
        out->kept_max = held > out->kept_max ? held : out->kept_max;
        out->kv_bytes += held_bytes(s, l, n_prompt, n_gen);
        out->kv_beside_bytes +=
            slots_beside(s, l, held, n, mixes(s, l, n_prompt, n_gen)) +
            (uint64_t)s->bank.store[l].n_kv * cb_store_beside_of(&s->bank.store[l], held);
        /* slots are dropped after they are read, by the layer itself */
        reads = have + (of == l && last_drop(s, l, n_prompt, n_gen, &gone) == n_gen ? gone : 0);
        read = cb_attention_read_bytes(&s->attention, l, reads,
                                       &(struct planned){ n_prompt, n_gen, held }, &scanned);
        out->kv_read_bytes_per_token += read;
        moved += read - scanned; /* the CPU scans sketches where rows are streamed */
        largest =
            max_bytes(largest, max_bytes(feed_bytes(s, l, n_prompt, slots_held(s, l, n_prompt, 0)),
                                         cb_held_heads(&s->bank.store[l], reads)));
    }
    out->scratch_bytes = cb_held_work(s, max_int(1, max_int(n_prompt, more)),
                                      max_int(n_prompt + more, out->kept_max), out->kept_max) +
                         cb_held_mtp(s, n, 1);
    peak = max_bytes(prefill_peak(s, n_prompt), decoding_peak(s, n_prompt, n_gen));
    out->kv_peak_bytes = max_bytes(peak, out->kv_bytes);
    if (cb_device_traffic(s->dev).limit_bytes) {
        TRY(plan_device(s, n_prompt, max_int(n_prompt, more),
                        s->model->stream_kv ? largest : out->kv_peak_bytes, out));
        out->device_kv_in_bytes_per_token = s->model->stream_kv ? moved : 0;
    }
    return CB_OK;
}

/* How a device's memory is shared out is asked in its tables. */
int cb_session_plan(const cb_session *s, int n_prompt, int n_gen, struct cb_memory *out)
{
    const int locked = cb_device_lock_memory(s->dev);
    const int err = plan_memory(s, n_prompt, n_gen, out);

    if (locked)
        cb_device_unlock(s->dev);
    return err;
}
