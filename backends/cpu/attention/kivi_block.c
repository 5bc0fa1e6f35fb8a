/* SPDX-License-Identifier: MIT */
/* kivi_block.c - a block with quantised entries as packed keys and values: in f32, or as integers
 * where the ISA multiplies those. */
#include "kivi_block.h"

#include <string.h>

#include "device/kivi.h"

static int slot_of(const struct kv_run *run, int j)
{
    return (run->idx ? run->idx[j] : j) + run->first;
}

static const uint8_t *key_group(const struct kv_kivi *q, int g, int hd)
{
    return q->k + (size_t)g * (size_t)hd * cb_kivi_block_bytes(q->bits_k);
}

static const uint8_t *value_row(const struct kv_kivi *q, int slot, int hd)
{
    const size_t bytes = (size_t)(hd / KIVI_GROUP) * cb_kivi_block_bytes(q->bits_v);
    return q->v + (size_t)(q->row_v ? q->row_v[slot] : slot) * bytes;
}

/* The group of keys that holds entries j..j+31, if they are a whole group in order; else NULL. */
static const uint8_t *whole_group(const struct kv_run *run, int j, int n, int hd)
{
    const struct kv_kivi *q = run->kivi;
    const int slot = slot_of(run, j), row = q->row_k ? q->row_k[slot < q->n_k ? slot : 0] : slot;

    if (n < KIVI_GROUP || slot + KIVI_GROUP > q->n_k || row % KIVI_GROUP)
        return NULL;
    if (slot_of(run, j + KIVI_GROUP - 1) != slot + KIVI_GROUP - 1) /* consecutive: slots ascend */
        return NULL;
    if (q->row_k && q->row_k[slot + KIVI_GROUP - 1] != row + KIVI_GROUP - 1)
        return NULL;
    return key_group(q, row / KIVI_GROUP, hd);
}

static const char *plain_row(const struct attn *a, const struct kv_run *run, int v, int slot)
{
    const enum kv_type t = v ? a->type_v : a->type_k;
    return (const char *)(v ? run->v : run->k) + (size_t)slot * cb_kv_row_bytes(t, a->hd);
}

/* Reads quantised slots in order. A group of keys is decoded once for all of its slots that
 * follow. */
struct reader {
    const struct kern_vec *k;
    const struct kv_kivi *q;
    int v, hd, group; /* the group in `panel`, -1: none */
    float *panel;     /* [KIVI_GROUP][hd] */
};

static void read_slot(struct reader *r, int slot, float *y)
{
    const struct kv_kivi *q = r->q;
    const int nk = r->k->attn->nk;
    const float *x = r->panel;
    int row, i;

    if (r->v) {
        r->k->kivi->value(q->bits_v, value_row(q, slot, r->hd), r->hd, y);
        return;
    }
    row = q->row_k ? q->row_k[slot] : slot;
    if (row / KIVI_GROUP != r->group) {
        r->group = row / KIVI_GROUP;
        r->k->kivi->group(q->bits_k, key_group(q, r->group, r->hd), r->hd, r->panel);
    }
    i = row % KIVI_GROUP;
    for (int c = 0; c < r->hd; c++)
        y[c] = x[i / nk * r->hd * nk + c * nk + i % nk];
}

/* Addresses of entries j..j+n-1 as plain rows, padded to n_row by repeating the last. Quantised
 * entries are decoded and rounded to tmp. */
static void as_rows(const struct kern_vec *k, const struct attn *a, const struct kv_run *run, int v,
                    int j, int n, int n_row, char *tmp, const char **row)
{
    const enum kv_type t = v ? a->type_v : a->type_k;
    float panel[KIVI_GROUP * CB_KIVI_MAX_HD], x[CB_KIVI_MAX_HD];
    struct reader r = { .k = k, .q = run->kivi, .v = v, .hd = a->hd, .group = -1, .panel = panel };

    for (int i = 0; i < n; i++) {
        const int slot = slot_of(run, j + i);
        row[i] = plain_row(a, run, v, slot);
        if (slot >= (v ? run->kivi->n_v : run->kivi->n_k))
            continue;
        read_slot(&r, slot, x);
        row[i] = tmp;
        k->encode(t, x, a->hd, tmp);
        tmp += cb_kv_row_bytes(t, a->hd);
    }
    for (int i = n; i < n_row; i++)
        row[i] = row[n - 1];
}

enum { ROW_BYTES = 4 * CB_KIVI_MAX_HD }; /* bytes of the largest row */

/* Packs the keys of entries j..j+n-1, which are not a whole group */
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

/* Packs the values of entries j..j+n-1, at most 16, as the packed entries from `at` on */
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
            code[n_code++] = value_row(run->kivi, slot, a->hd);
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
            k->kivi->value(run->kivi->bits_v, value_row(run->kivi, slot, a->hd), a->hd, y);
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

enum { MAX_ROWS = SUB_TILES * MAX_TILE }; /* rows a block of logits */

/* The quantised row of entry j's key, or -1 if it is not quantised */
static int key_row(const struct kv_run *run, int j)
{
    const int slot = slot_of(run, j);

    if (slot >= run->kivi->n_k)
        return -1;
    return run->kivi->row_k ? run->kivi->row_k[slot] : slot;
}

/* The quantised values of entries j.., to prefetch while their keys are read; `other` if they are
 * not quantised */
static const uint8_t *values_ahead(const struct kv_run *run, int j, int hd, const uint8_t *other)
{
    const int slot = slot_of(run, j);
    return slot < run->kivi->n_v ? value_row(run->kivi, slot, hd) : other;
}

/* The same for keys, which are read after the previous block's values */
static const uint8_t *keys_ahead(const struct kv_run *run, int j, int hd, const uint8_t *other)
{
    const int row = j < run->n ? key_row(run, j) : -1;
    return row >= 0 ? key_group(run->kivi, row / KIVI_GROUP, hd) : other;
}

/* Counts the entries j.. that lie scattered in adjacent groups, at most KEY_BLOCK of them. at[]:
 * their offsets from the start of the first group. */
static int scattered(const struct kv_run *run, int j, int n, int *at, int *n_group)
{
    const int row = key_row(run, j), first = row / KIVI_GROUP * KIVI_GROUP;
    int m = 1;

    at[0] = row - first;
    *n_group = 1;
    for (; m < n && m < KEY_BLOCK; m++) {
        at[m] = key_row(run, j + m) - first;
        if (at[m] < 0 || at[m] >= KEY_BLOCK || at[m] / KIVI_GROUP > *n_group)
            break;
        if (at[m] / KIVI_GROUP == *n_group)
            ++*n_group;
    }
    return m;
}

/* Logits of the next entries from j on: whole groups in order, scattered entries, or plain rows.
 * Returns how many. */
static int some_logits(const struct kern_vec *k, const struct tile *t, int r, int rows, int j,
                       int n, void *kp, float *s)
{
    const struct kv_kivi *q = t->run->kivi;
    const int hd = t->a->hd, row = key_row(t->run, j);
    const uint8_t *group = whole_group(t->run, j, n, hd);
    float x[MAX_ROWS * KEY_BLOCK];
    int at[KEY_BLOCK], m = 1, n_group;

    if (group) {
        const size_t bytes = (size_t)hd * cb_kivi_block_bytes(q->bits_k);
        while (whole_group(t->run, j + m * KIVI_GROUP, n - m * KIVI_GROUP, hd) ==
               group + (size_t)m * bytes)
            m++;
        k->kivi->logits(q->bits_k, group, m, t->q + r, t->scale, rows, hd,
                        values_ahead(t->run, j, hd, group), s);
        return m * KIVI_GROUP;
    }
    if (row >= 0) {
        m = scattered(t->run, j, n, at, &n_group);
        group = key_group(q, row / KIVI_GROUP, hd);
        k->kivi->logits(q->bits_k, group, n_group, t->q + r, t->scale, rows, hd, group, x);
    } else {
        m = n < KIVI_GROUP ? n : KIVI_GROUP;
        for (int i = 0; i < m; i++)
            at[i] = i;
        pack_some_keys(k, t->a, t->run, j, m, kp);
        cb_tile_logits(t, r, rows, kp, KIVI_GROUP, x);
    }
    for (int i = 0; i < rows; i++)
        for (int e = 0; e < m; e++)
            s[i * KEY_BLOCK + e] = x[i * KEY_BLOCK + at[e]];
    return m;
}

void cb_kivi_logits(const struct kern_vec *k, const struct tile *t, int r, int rows, int from,
                    int n, void *kp, float *s)
{
    const int whole = (n + KIVI_GROUP - 1) / KIVI_GROUP * KIVI_GROUP;

    for (int j = 0; j < n;)
        j += some_logits(k, t, r, rows, from + j, n - j, kp, s + j);
    for (int i = 0; i < rows; i++)
        for (int j = n; j < whole; j++)
            s[i * KEY_BLOCK + j] = 0;
}

int cb_kivi_has_pv(const struct kern_vec *k, const struct tile *t, int from, int n)
{
    return t->run->kivi && k->kivi->pv && one_token(t->a) && n == KEY_BLOCK &&
           slot_of(t->run, from + n - 1) < t->run->kivi->n_v; /* slots ascend */
}

void cb_kivi_pv(const struct kern_vec *k, const struct tile *t, int from,
                const struct kern_soft *soft, float *o)
{
    const struct kv_kivi *q = t->run->kivi;
    const int hd = t->a->hd, scattered = t->run->idx || q->row_v;
    const uint8_t *first = value_row(q, slot_of(t->run, from), hd), *row[KEY_BLOCK];
    const size_t bytes = (size_t)(hd / KIVI_GROUP) * cb_kivi_block_bytes(q->bits_v);

    for (int j = 0; !scattered && j < KEY_BLOCK; j++)
        row[j] = first + (size_t)j * bytes;
    for (int j = 0; scattered && j < KEY_BLOCK; j++)
        row[j] = value_row(q, slot_of(t->run, from + j), hd);
    k->kivi->pv(q->bits_v, row, soft, hd, keys_ahead(t->run, from + KEY_BLOCK, hd, row[0]), o);
}
