/* SPDX-License-Identifier: MIT */
/* memory_held.c - the memory that a session holds now. */
#include "memory_held.h"

#include "attention/attend.h"
#include "expanded_latents.h"
#include "model/head_prune.h"
#include "mtp_drafter.h"
#include "session.h"

uint64_t cb_held_weights(const struct cb_session *s)
{
    return s->model->weights_bytes + cb_head_prune_bytes(s->model->head_prune);
}

uint64_t cb_held_full(const struct cb_session *s, int n)
{
    const struct cb_model *m = s->model;
    uint64_t numbers = 0;

    for (int l = 0; l < m->hp.n_layer; l++)
        if (!m->layer[l].kv_back)
            numbers += (uint64_t)m->layer[l].n_kv * (uint64_t)m->layer[l].hd;
    return (uint64_t)n * numbers * 2 * (m->hp.one_row ? 1 : 2);
}

uint64_t cb_held_heads(const struct store *st, int n)
{
    uint64_t sum = 0;

    for (int h = 0; h < st->n_kv; h++)
        sum += cb_store_bytes_of(st, h, n);
    return sum;
}

uint64_t cb_held_work(const struct cb_session *s, int n_feed, int n_most, int n_kept)
{
    const int64_t more = (int64_t)n_feed - s->w.cap_tok;

    return s->w.bytes + s->device_bytes +
           (uint64_t)(more * (int64_t)(cb_session_tok_floats(s) * sizeof(float))) +
           cb_attention_bytes(&s->attention, n_feed, n_most, n_kept) +
           cb_expanded_bytes(s, n_feed, n_most);
}

uint64_t cb_held_mtp(const struct cb_session *s, int n, int planned)
{
    const struct mtp_drafter *x = cb_mtp_drafter_of(s);
    const struct cb_session *h = x ? x->s : NULL;

    return h ? cb_mtp_drafter_bytes(x) + cb_held_work(h, h->w.cap_tok, n, n) +
                   (planned ? cb_held_heads(&h->bank.store[0], n) : cb_bank_bytes(&h->bank))
             : 0;
}

static void note_device(const struct cb_session *s, struct cb_memory *out)
{
    const int locked = cb_device_lock_memory(s->dev);
    const struct device_traffic t = cb_device_traffic(s->dev);

    if (locked)
        cb_device_unlock(s->dev);

    out->device_limit_bytes = t.limit_bytes;
    out->device_weights_bytes = t.weights_bytes;
    out->device_kv_bytes = t.kv_bytes;
    out->device_work_bytes = t.used_bytes - t.weights_bytes - t.kv_bytes;
    out->device_peak_bytes = t.peak_bytes;
    out->device_in_bytes = t.in_bytes;
    out->device_out_bytes = t.out_bytes;
    out->device_weights_in_bytes = t.weights_in_bytes;
    out->device_rows = t.hit_rows;
    out->host_rows = t.host_rows;
    out->device_sketches = t.hit_sketches;
    out->host_sketches = t.host_sketches;
    out->device_kv_in_bytes_per_token = s->traffic[1].kv_in_bytes - s->traffic[0].kv_in_bytes;
    out->device_kv_out_bytes_per_token = s->traffic[1].kv_out_bytes - s->traffic[0].kv_out_bytes;
    out->device_rows_per_token = s->traffic[1].hit_rows - s->traffic[0].hit_rows;
    out->host_rows_per_token = s->traffic[1].host_rows - s->traffic[0].host_rows;
    out->device_gathered_rows_per_token = s->traffic[1].gathered_rows - s->traffic[0].gathered_rows;
    out->device_gathers_per_token = s->traffic[1].gathers - s->traffic[0].gathers;
    out->device_gather_s_per_token = s->traffic[1].gather_s - s->traffic[0].gather_s;
}

void cb_session_memory(const cb_session *s, struct cb_memory *out)
{
    *out = (struct cb_memory){
        .weights_bytes = cb_held_weights(s),
        .head_prune_bytes = cb_head_prune_bytes(s->model->head_prune),
        .shared_bytes = cb_held_weights(s) + s->device_bytes,
        .kv_bytes = cb_bank_bytes(&s->bank),
        .kv_full_bytes = cb_held_full(s, s->bank.n_seen),
        .kv_peak_bytes = s->bank.peak_bytes,
        .kv_beside_bytes = cb_bank_beside(&s->bank),
        .kv_read_bytes_per_token = s->bank.decoding ? s->bank.read_bytes : 0,
        .prompt_density =
            s->bank.pairs_all ? (double)s->bank.pairs_read / (double)s->bank.pairs_all : 0,
        .state_bytes = 2 * cb_states_bytes(&s->bank.states),
        .checkpoint_bytes = cb_states_points(&s->bank.states),
    };
    out->kept_min = s->bank.n_seen;
    for (int l = 0; l < s->model->hp.n_layer; l++) {
        if (s->model->layer[l].kv_back || !s->model->layer[l].n_kv)
            continue;
        const int dealt = cb_context_split_deals(&s->attention, l); /* all ranks hold all slots */
        const int lo = dealt ? s->bank.n_seen : cb_store_min_len(&s->bank.store[l]);
        const int hi = dealt ? s->bank.n_seen : cb_store_max_len(&s->bank.store[l]);
        out->kept_min = lo < out->kept_min ? lo : out->kept_min;
        out->kept_max = hi > out->kept_max ? hi : out->kept_max;
    }
    note_device(s, out);
    out->scratch_bytes = cb_held_work(s, s->w.cap_tok, s->bank.n_most, out->kept_max) +
                         cb_held_mtp(s, s->bank.n_seen, 0);
}
