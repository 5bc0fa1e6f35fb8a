/* SPDX-License-Identifier: MIT */
/* kivi_block.c - a block of entries of which some are quantised, as packed keys and values: in f32, or as
 * integers where an ISA multiplies those. */
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

static const char *plain_row(const struct attn *a, const struct kv_run *run, int v, int slot)
{
    const enum kv_type t = v ? a->type_v : a->type_k;
    return (const char *)(v ? run->v : run->k) + (size_t)slot * cb_kv_row_bytes(t, a->hd);
}

/* Entries j..j+n-1 as n_row addresses of plain rows, the last one repeated; quantised ones are decoded
 * and rounded to tmp. */
static void as_rows(const struct kern_vec *k, const struct attn *a, const struct kv_run *run, int v,
                    int j, int n, int n_row, char *tmp, const char **row)
{
    const enum kv_type t = v ? a->type_v : a->type_k;
    float x[CB_KIVI_MAX_HD];

    for (int i = 0; i < n; i++) {
        const int slot = slot_of(run, j + i);
        row[i] = plain_row(a, run, v, slot);
        if (slot >= (v ? run->kivi->n_v : run->kivi->n_k))
            continue;
        cb_kivi_row(run->kivi, v, slot, a->hd, x);
        row[i] = tmp;
        k->encode(t, x, a->hd, tmp);
        tmp += cb_kv_row_bytes(t, a->hd);
    }
    for (int i = n; i < n_row; i++)
        row[i] = row[n - 1];
}

enum { ROW_BYTES = 4 * CB_KIVI_MAX_HD }; /* at most */

/* Entries j..j+n-1, not a whole group */
static void pack_some_keys(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                           int j, int n, void *panel)
{
    const char *row[KIVI_GROUP];
    char tmp[KIVI_GROUP * ROW_BYTES];
    const struct kern_rows rows = {
        .t = a->type_k, .n = KIVI_GROUP, .row = row, .bytes = cb_kv_row_bytes(a->type_k, a->hd)
    };

    as_rows(k, a, run, 0, j, n, KIVI_GROUP, tmp, row);
    cb_qk_of(k->attn, a)->pack_k(&rows, a->hd, panel);
}

void cb_kivi_pack_keys(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                       int from, int n, void *kp)
{
    const struct kern_qk *qk = cb_qk_of(k->attn, a);

    for (int j = 0; j < n; j += KIVI_GROUP) {
        const uint8_t *group = whole_group(run, from + j, n - j, a->hd);
        void *panel = (char *)kp + (size_t)j * qk->k_bytes(a->hd);
        if (!group)
            pack_some_keys(k, a, run, from + j, n - j < KIVI_GROUP ? n - j : KIVI_GROUP, panel);
        else if (qk == k->attn->qk_half)
            k->kivi->group_i16(run->kivi->bits_k, group, a->hd, panel);
        else
            k->kivi->group(run->kivi->bits_k, group, a->hd, panel);
    }
}

static const uint8_t *quantised_value(const struct attn *a, const struct kv_kivi *q, int slot)
{
    const size_t bytes = (size_t)(a->hd / KIVI_GROUP) * cb_kivi_block_bytes(q->bits_v);
    return q->v + (size_t)(q->row_v ? q->row_v[slot] : slot) * bytes;
}

/* Entries j..j+n-1, at most 16, which become those from `at` on */
static void integer_values(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                           int j, int n, int at, void *v)
{
    const char *row[16];
    const uint8_t *code[16];
    char tmp[16 * ROW_BYTES];
    int n_code = 0;
    const struct kern_rows rows = {
        .t = a->type_v, .n = 16, .row = row, .bytes = cb_kv_row_bytes(a->type_v, a->hd)
    };

    for (int i = 0; i < n; i++) {
        const int slot = slot_of(run, j + i);
        if (slot < run->kivi->n_v)
            code[n_code++] = quantised_value(a, run->kivi, slot);
    }
    if (n_code == 16) {
        k->kivi->values_i16(run->kivi->bits_v, code, a->hd, v, at);
        return;
    }
    as_rows(k, a, run, 1, j, n, 16, tmp, row);
    k->attn->pack_v_i16(&rows, a->hd, at, v);
}

void cb_kivi_pack_values(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                         int from, int n, int hd_pad, void *v)
{
    float *y = v;

    if (cb_integer_values(k->attn, a, a->type_v)) {
        for (int j = 0; j < n; j += 16)
            integer_values(k, a, run, from + j, n - j < 16 ? n - j : 16, j, v);
        return;
    }
    for (int j = 0; j < n; j++, y += hd_pad) {
        const int slot = slot_of(run, from + j);
        if (slot >= run->kivi->n_v)
            k->decode(a->type_v, plain_row(a, run, 1, slot), a->hd, y);
        else
            k->kivi->value(run->kivi->bits_v, quantised_value(a, run->kivi, slot), a->hd, y);
        memset(y + a->hd, 0, (size_t)(hd_pad - a->hd) * sizeof *y);
    }
}

/* ---- a token's attention, without packing ---- */

static int one_token(const struct attn *a)
{
    return !a->causal && a->hd % 32 == 0;
}

int cb_kivi_has_logits(const struct kern_vec *k, const struct tile *t)
{
    return t->run->kivi && k->kivi->logits && one_token(t->a);
}

void cb_kivi_logits(const struct kern_vec *k, const struct tile *t, int r, int rows, int from,
                    int n, void *kp, float *s)
{
    const int hd = t->a->hd, bits = t->run->kivi->bits_k;
    const size_t bytes = (size_t)hd * cb_kivi_block_bytes(bits);

    for (int j = 0, m; j < n; j += m * KIVI_GROUP) {
        const uint8_t *group = whole_group(t->run, from + j, n - j, hd);
        m = 1;
        if (!group) {
            pack_some_keys(k, t->a, t->run, from + j, n - j < KIVI_GROUP ? n - j : KIVI_GROUP, kp);
            cb_tile_logits(t, r, rows, kp, KIVI_GROUP, s + j);
            continue;
        }
        while (whole_group(t->run, from + j + m * KIVI_GROUP, n - j - m * KIVI_GROUP, hd) ==
               group + (size_t)m * bytes)
            m++;
        k->kivi->logits(bits, group, m, t->q + r, t->scale, rows, hd, s + j);
    }
}

int cb_kivi_has_pv(const struct kern_vec *k, const struct tile *t, int from, int n)
{
    return t->run->kivi && k->kivi->pv && one_token(t->a) && n == KEY_BLOCK &&
           slot_of(t->run, from + n - 1) < t->run->kivi->n_v; /* slots ascend */
}

void cb_kivi_pv(const struct kern_vec *k, const struct tile *t, int from,
                const struct kern_soft *soft, float *o)
{
    const uint8_t *row[KEY_BLOCK];

    for (int j = 0; j < KEY_BLOCK; j++)
        row[j] = quantised_value(t->a, t->run->kivi, slot_of(t->run, from + j));
    k->kivi->pv(t->run->kivi->bits_v, row, soft, t->a->hd, o);
}
