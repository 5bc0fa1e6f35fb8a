/* SPDX-License-Identifier: MIT */
/* kivi_block.c - a block of entries of which some are quantised, as packed keys and values in f32. */
#include <string.h>

#include "attn.h"
#include "kivi.h"

static int slot_of(const struct kv_run *run, int j)
{
    return (run->idx ? run->idx[j] : j) + run->first;
}

/* Where the group of keys lies that entries j..j+31 are, if they are one in its order. */
static const uint8_t *whole_group(const struct kv_run *run, int j, int n, int hd)
{
    const struct kv_kivi *q = run->kivi;
    const int slot = slot_of(run, j), row = q->row_k ? q->row_k[slot < q->n_k ? slot : 0] : slot;

    if (n < KIVI_GROUP || slot + KIVI_GROUP > q->n_k || row % KIVI_GROUP)
        return NULL;
    if (slot_of(run, j + KIVI_GROUP - 1) != slot + KIVI_GROUP - 1) /* ascending: a run of slots */
        return NULL;
    if (q->row_k && q->row_k[slot + KIVI_GROUP - 1] != row + KIVI_GROUP - 1)
        return NULL;
    return q->k + (size_t)(row / KIVI_GROUP) * (size_t)hd * cb_kivi_block_bytes(q->bits_k);
}

static void one_key(const struct kern_vec *k, const struct attn *a, const struct kv_run *run, int j,
                    int nk, float *kp)
{
    const int slot = slot_of(run, j);
    float x[CB_KIVI_MAX_HD];

    if (slot < run->kivi->n_k)
        cb_kivi_row(run->kivi, 0, slot, a->hd, x);
    else
        k->decode(a->type_k,
                  (const char *)run->k + (size_t)slot * cb_kv_row_bytes(a->type_k, a->hd), a->hd,
                  x);
    for (int c = 0; c < a->hd; c++)
        kp[c * nk] = x[c];
}

void cb_kivi_pack_keys(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                       int from, int n, float *kp)
{
    const int nk = k->attn->nk;

    for (int j = 0; j < n; j += KIVI_GROUP) {
        const uint8_t *group = whole_group(run, from + j, n - j, a->hd);
        const int m = n - j < KIVI_GROUP ? n - j : KIVI_GROUP;
        float *panel = kp + (size_t)j * (size_t)a->hd;
        if (group) {
            k->kivi->group(run->kivi->bits_k, group, a->hd, panel);
            continue;
        }
        memset(panel, 0, (size_t)(KIVI_GROUP * a->hd) * sizeof *panel);
        for (int i = 0; i < m; i++)
            one_key(k, a, run, from + j + i, nk,
                    panel + (size_t)(i / nk * nk) * (size_t)a->hd + i % nk);
    }
}

void cb_kivi_pack_values(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                         int from, int n, int hd_pad, float *v)
{
    const struct kv_kivi *q = run->kivi;
    const size_t row = (size_t)(a->hd / KIVI_GROUP) * cb_kivi_block_bytes(q->bits_v);
    const size_t plain = cb_kv_row_bytes(a->type_v, a->hd);

    for (int j = 0; j < n; j++, v += hd_pad) {
        const int slot = slot_of(run, from + j);
        if (slot >= q->n_v)
            k->decode(a->type_v, (const char *)run->v + (size_t)slot * plain, a->hd, v);
        else
            k->kivi->value(q->bits_v, q->v + (size_t)(q->row_v ? q->row_v[slot] : slot) * row,
                           a->hd, v);
        memset(v + a->hd, 0, (size_t)(hd_pad - a->hd) * sizeof *v);
    }
}
