/* SPDX-License-Identifier: MIT */
/* index_choice.c - the best of a trained selector's keys. Keys in strips are scanned by 8 of their
 * 12 bits, which cannot rank keys of nearly equal scores. Their rank matters near the end of the
 * choice alone, so the keys near that end are scored again, by all their bits. */
#include "index_choice.h"

#include <string.h>

#include "base/ints.h"
#include "device/index_strips.h"
#include "state_memory.h"

/* Ranks that scores of 8 bits may be off by at the end of a choice of k. With random keys and k of
 * 2,048 the deviation is some 40 ranks (bench/results/model-kinds.md, "A selector of tokens"). */
static int off_by(int k)
{
    return k / 8 + 16;
}

int cb_index_choice_open(struct index_choice *x, void *state, int n_head, int hd, int n_key, int k)
{
    const size_t near = 2 * (size_t)off_by(k), cand = (size_t)k + (size_t)off_by(k);

    *x = (struct index_choice){ .hd = hd, .n_head = n_head, .k = k };
    x->stride = ((size_t)n_key / STRIP_BLOCK + 1) * STRIP_BLOCK;
    /* memory for these is committed page by page as the context grows */
    x->score = cb_state_alloc(state, INDEX_QUERIES * x->stride, sizeof *x->score);
    x->work = cb_state_alloc(
        state, 1, cb_index_scan_bytes(NULL, INDEX_QUERIES, n_head, hd, n_key + 1, 0, NULL));
    x->key = cb_state_alloc(state, near * (size_t)hd, sizeof *x->key);
    x->near = cb_state_alloc(state, cand > near ? cand : near, sizeof *x->near);
    x->cand = cb_state_alloc(state, cand, sizeof *x->cand);
    x->at = cb_state_alloc(state, cand, sizeof *x->at);
    x->place = cb_state_alloc(state, near, sizeof *x->place);
    x->taken = cb_state_alloc(state, cand, sizeof *x->taken);
    x->query = cb_state_alloc(state, (size_t)n_head * (size_t)(hd + 1), sizeof *x->query);
    return cb_state_status(state);
}

size_t cb_index_choice_bytes(const struct index_choice *x, int n_feed, int n)
{
    const size_t near = 2 * (size_t)off_by(x->k), cand = (size_t)x->k + (size_t)off_by(x->k);
    const size_t rows = (size_t)min_int(n_feed, INDEX_QUERIES);

    return rows * (size_t)n * sizeof *x->score +
           (size_t)x->n_head * (size_t)(x->hd + 1) * sizeof *x->query +
           cb_index_scan_bytes(NULL, (int)rows, x->n_head, x->hd, n, x->k + off_by(x->k), NULL) +
           near * ((size_t)x->hd * sizeof *x->key + sizeof *x->place) +
           cand * (sizeof *x->near + 2 * sizeof *x->cand + 1);
}

/* Scores by rows of type t: x->score of some queries, or `out` of one */
static void score_rows(const struct index_choice *x, const struct attention *a, const void *rows,
                       enum kv_type t, int n, const struct index_queries *q, int first, int n_tok,
                       float *out)
{
    const size_t at = (size_t)first * (size_t)q->stride;
    const struct kv_run run = { .k = rows, .v = rows, .n = n };
    const struct score s = { .a = { .n_tok = n_tok,
                                    .n_head = x->n_head,
                                    .n_kv = 1,
                                    .hd = x->hd,
                                    .scale = 1,
                                    .prompt = 1, /* alike, whatever the queries are of */
                                    .type_k = t,
                                    .type_v = t,
                                    .run = &run,
                                    .q = q->q + at,
                                    .q_stride = q->stride },
                             .weight = q->weight ? q->weight + at : NULL,
                             .logit = 1,
                             .rectified = 1,
                             .out = out,
                             .out_stride = (int)x->stride };

    for (int i = 0; i < n_tok; i++)
        memset(out + (size_t)i * x->stride, 0, (size_t)max_int(n, 0) * sizeof *out);
    a->host->ops->score(a->host, &s);
}

/* Scores of n keys for all queries, of which k are wanted -> x->score */
static void score(const struct index_choice *x, const struct attention *a,
                  const struct index_keys *keys, const struct index_queries *q, const int *n_key,
                  int n, int k)
{
    const struct index_scan s = { .n_tok = q->n,
                                  .n_head = x->n_head,
                                  .hd = x->hd,
                                  .n = n,
                                  .n_key = n_key,
                                  .k = k,
                                  .keys = keys->at,
                                  .q = q->q,
                                  .weight = q->weight,
                                  .stride = q->stride,
                                  .out = x->score,
                                  .out_stride = x->stride,
                                  .work = x->work };

    if (keys->strips)
        a->host->ops->index_scan(a->host, &s);
    else
        score_rows(x, a, keys->at, keys->type, n, q, 0, q->n, x->score);
}

/* The `want` best of those of the n candidates that are not taken, by all bits of their keys, are
 * taken. */
static void take_near(struct index_choice *x, const struct attention *a,
                      const struct index_keys *keys, const struct index_queries *q, int i, int n,
                      int want)
{
    int m = 0;

    for (int j = 0; j < n; j++)
        if (!x->taken[j]) {
            cb_strips_get(keys->at, x->cand + j, 1, x->hd, x->key + (size_t)m * (size_t)x->hd);
            x->place[m++] = j;
        }
    score_rows(x, a, x->key, KV_F32, m, q, i, 1, x->near);
    a->host->ops->topk(a->host, x->near, m, want, x->at);
    for (int j = 0; j < want; j++)
        x->taken[x->place[x->at[j]]] = 1;
}

/* The k best of n keys in strips for query i */
static void choose_near(struct index_choice *x, const struct attention *a,
                        const struct index_keys *keys, const struct index_queries *q, int i, int n,
                        int k, int32_t *list)
{
    const float *score = x->score + (size_t)i * x->stride;
    const int n_cand = k + min_int(off_by(k), n - k), sure = max_int(0, k - off_by(k));
    int m = 0;

    a->host->ops->topk(a->host, score, n, n_cand, x->cand);
    for (int j = 0; j < n_cand; j++) {
        x->near[j] = score[x->cand[j]];
        x->taken[j] = 0;
    }
    if (sure)
        a->host->ops->topk(a->host, x->near, n_cand, sure, x->at);
    for (int j = 0; j < sure; j++)
        x->taken[x->at[j]] = 1;
    take_near(x, a, keys, q, i, n_cand, k - sure);
    for (int j = 0; j < n_cand; j++)
        if (x->taken[j])
            list[m++] = x->cand[j];
}

void cb_index_choose(struct index_choice *x, const struct attention *a,
                     const struct index_keys *keys, const struct index_queries *q, const int *n_key,
                     int k, int32_t *list, size_t list_stride)
{
    int most = 0;

    for (int i = 0; i < q->n; i++)
        most = max_int(most, n_key[i]);
    cb_index_keys_ahead(keys, a, most);
    score(x, a, keys, q, n_key, most, k + off_by(k));
    for (int i = 0; i < q->n; i++) {
        int32_t *to = list + (size_t)i * list_stride;
        if (keys->strips && n_key[i] > k)
            choose_near(x, a, keys, q, i, n_key[i], k, to);
        else
            a->host->ops->topk(a->host, x->score + (size_t)i * x->stride, n_key[i], k, to);
    }
}

/* 1: the device has chosen. */
static int device_chooses(const struct index_choice *x, const struct attention *a,
                          const struct index_keys *keys, const struct index_rows *r, int n, int k,
                          int after, int later, int32_t *list)
{
    const struct index_topk t = { .s = { .n_tok = 1,
                                         .n_head = x->n_head,
                                         .hd = x->hd,
                                         .n = n,
                                         .keys = keys->at,
                                         .q = r->q,
                                         .weight = r->weight,
                                         .stride = r->stride },
                                  .k = k,
                                  .n_near = k + min_int(off_by(k), n - k),
                                  .per = keys->per,
                                  .idx = list,
                                  .after = after,
                                  .later = later };

    return a->dev->ops->index_topk(a->dev, &t);
}

/* The CPU chooses for it -> list[k] keys */
static void host_chooses(struct index_choice *x, const struct attention *a,
                         const struct index_keys *keys, const struct index_rows *r, int n, int k,
                         int32_t *list)
{
    const size_t heads = (size_t)x->n_head * (size_t)x->hd;
    struct index_queries q = { r->q, r->weight, r->stride, 1 };

    if (r->far) {
        cb_device_copy(a->dev, x->query, r->q, heads * sizeof *x->query);
        if (r->weight)
            cb_device_copy(a->dev, x->query + heads, r->weight,
                           (size_t)x->n_head * sizeof *x->query);
        q.q = x->query;
        q.weight = r->weight ? x->query + heads : NULL;
    }
    cb_index_choose(x, a, keys, &q, &n, k, list, (size_t)k);
}

int cb_index_tokens(const int32_t *key, int k, int per, int end, int32_t *list)
{
    int n = k * per;

    for (int j = k - 1; key && j >= 0; j--) {
        const int first = key[j] * per;
        for (int t = per - 1; t >= 0; t--)
            list[j * per + t] = first + t;
    }
    for (int i = end / per * per; i < end; i++)
        list[n++] = i;
    return n;
}

void cb_index_choose_one(struct index_choice *x, const struct attention *a,
                         const struct index_keys *keys, const struct index_rows *r, int n, int k,
                         int after, int later, int32_t *list)
{
    const int there = r->far && device_chooses(x, a, keys, r, n, k, after, later, list);

    if (!there)
        host_chooses(x, a, keys, r, n, k, list);
    cb_index_tokens(there ? NULL : list, k, keys->per, n * keys->per + after, list);
}

uint64_t cb_index_choice_reads(const struct index_keys *keys, int n, int k)
{
    const int near = keys->strips ? min_int(off_by(k), n - k) + min_int(off_by(k), k) : 0;

    return cb_index_keys_scanned(keys, n) + (uint64_t)near * (uint64_t)cb_strip_pad(keys->hd) / 2;
}
