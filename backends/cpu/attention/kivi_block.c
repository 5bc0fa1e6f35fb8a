/* SPDX-License-Identifier: MIT */
/* kivi_block.c - a block with quantised entries as packed keys and values: in f32, or as integers
 * where the ISA multiplies those. */
#include "kivi_block.h"

#include <string.h>

#include "base/ints.h"
#include "device/kivi.h"
#include "device/planes.h"

static int slot_of(const struct kv_run *run, int j)
{
    return (run->idx ? run->idx[j] : j) + run->first;
}

/* The quantised row of entry j's key, or -1 if it is not quantised */
static int key_row(const struct kv_run *run, int j)
{
    return cb_kivi_row_of(run->kivi, 0, slot_of(run, j));
}

/* Where the keys of rows 32 * g.. lie, in groups of any size */
static const uint8_t *keys_at(const struct kv_kivi *q, int g, int hd)
{
    const int group = cb_kivi_group(q, 0);
    return q->k +
           (size_t)(g / (group / KIVI_GROUP)) * (size_t)hd * cb_kivi_group_bytes(q->bits_k, group);
}

/* n times 32 keys from rows 32 * g on, as blocks [n][hd]: in place, or in tmp where groups are
 * larger */
static const uint8_t *key_blocks(const struct kv_kivi *q, int g, int n, int hd, uint8_t *tmp)
{
    const int group = cb_kivi_group(q, 0), per = group / KIVI_GROUP;
    const size_t bytes = cb_kivi_group_bytes(q->bits_k, group);
    uint8_t *to = tmp;

    if (per == 1)
        return keys_at(q, g, hd);
    for (int i = g; i < g + n; i++)
        for (int c = 0; c < hd; c++, to += cb_kivi_block_bytes(q->bits_k))
            cb_kivi_take(q->bits_k, keys_at(q, i, hd) + (size_t)c * bytes, i % per, to);
    return tmp;
}

static const uint8_t *values_at(const struct kv_kivi *q, int row, int hd)
{
    const int group = cb_kivi_group(q, 1);
    return q->v + (size_t)row * (size_t)(hd / group) * cb_kivi_group_bytes(q->bits_v, group);
}

/* A row of values as blocks [hd / 32]: in place, or in tmp */
static const uint8_t *value_blocks(const struct kv_kivi *q, int row, int hd, uint8_t *tmp)
{
    const int group = cb_kivi_group(q, 1), per = group / KIVI_GROUP;
    const uint8_t *at = values_at(q, row, hd);
    const size_t bytes = cb_kivi_group_bytes(q->bits_v, group);
    uint8_t *to = tmp;

    if (per == 1)
        return at;
    for (int i = 0; i < hd / KIVI_GROUP; i++, to += cb_kivi_block_bytes(q->bits_v))
        cb_kivi_take(q->bits_v, at + (size_t)(i / per) * bytes, i % per, to);
    return tmp;
}

enum {
    BLOCKS = CB_KIVI_MAX_HD * CB_KIVI_MAX_BLOCK,                    /* bytes of 32 keys */
    VALUE_BLOCKS = CB_KIVI_MAX_HD / KIVI_GROUP * CB_KIVI_MAX_BLOCK, /* of a value */
};

/* g if entries j..j+31 are the quantised rows 32 * g.. in order; else -1 */
static int whole_group(const struct kv_run *run, int j, int n)
{
    const int slot = slot_of(run, j), row = cb_kivi_row_of(run->kivi, 0, slot);

    if (n < KIVI_GROUP || row < 0 || row % KIVI_GROUP || cb_kivi_in_planes(run->kivi))
        return -1;
    if (slot_of(run, j + KIVI_GROUP - 1) != slot + KIVI_GROUP - 1) /* consecutive: slots ascend */
        return -1;
    if (cb_kivi_row_of(run->kivi, 0, slot + KIVI_GROUP - 1) != row + KIVI_GROUP - 1)
        return -1;
    return row / KIVI_GROUP;
}

static const char *plain_row(const struct attn *a, const struct kv_run *run, int v, int slot)
{
    const enum kv_type t = v ? a->type_v : a->type_k;
    return (const char *)(v ? run->v : run->k) + (size_t)slot * cb_kv_row_bytes(t, a->hd);
}

/* Reads quantised rows in order. 32 keys are decoded once for all of them that follow. */
struct reader {
    const struct kern_vec *k;
    const struct kv_kivi *q;
    int v, hd, group; /* the 32 rows in `panel`, -1: none */
    float *panel;     /* [KIVI_GROUP][hd] */
};

static void read_row(struct reader *r, int row, float *y)
{
    const struct kv_kivi *q = r->q;
    const int nk = r->k->attn->nk, i = row % KIVI_GROUP;
    const float *x = r->panel;
    uint8_t tmp[BLOCKS];

    if (r->v) {
        r->k->kivi->value(q->bits_v, value_blocks(q, row, r->hd, tmp), r->hd, y);
        return;
    }
    if (row / KIVI_GROUP != r->group) {
        r->group = row / KIVI_GROUP;
        r->k->kivi->group(q->bits_k, key_blocks(q, r->group, 1, r->hd, tmp), r->hd, r->panel);
    }
    for (int c = 0; c < r->hd; c++)
        y[c] = x[i / nk * r->hd * nk + c * nk + i % nk];
}

/* A key in planes -> a row of halves */
static void read_planes(const struct kern_vec *k, const struct kv_kivi *q, int row, int hd,
                        void *half)
{
    const uint8_t *block, *rest;
    const int token = cb_kivi_planes_at(q, row, hd, &block, &rest);

    k->kivi->planes(q->plane_bits, hd, block, token, rest, half);
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
        const int slot = slot_of(run, j + i), quantised = cb_kivi_row_of(run->kivi, v, slot);
        row[i] = plain_row(a, run, v, slot);
        if (quantised < 0)
            continue;
        row[i] = tmp;
        if (!v && cb_kivi_in_planes(run->kivi))
            read_planes(k, run->kivi, quantised, a->hd, tmp);
        else {
            read_row(&r, quantised, x);
            k->encode(t, x, a->hd, tmp);
        }
        tmp += cb_kv_row_bytes(t, a->hd);
    }
    for (int i = n; i < n_row; i++)
        row[i] = row[n - 1];
}

/* Prefetches the second plane of the next keys, from entry j on; a search has just read the first
 */
static void ask_planes(const struct kv_run *run, int j, int hd)
{
    const size_t bytes = cb_planes_row_bytes(run->kivi->plane_bits, hd);

    for (int end = min_int(run->n, j + KIVI_GROUP); j < end; j++) {
        const int row = key_row(run, j);
        for (size_t i = 0; row >= 0 && i < bytes + 63; i += 64)
            __builtin_prefetch(run->kivi->k + (size_t)row * bytes + min_size(i, bytes - 1), 0, 2);
    }
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
    uint8_t tmp[BLOCKS];

    for (int j = 0; j < n; j += KIVI_GROUP) {
        const int g = whole_group(run, from + j, n - j);
        if (cb_kivi_in_planes(run->kivi))
            ask_planes(run, from + j + KIVI_GROUP, a->hd);
        const uint8_t *keys = g < 0 ? NULL : key_blocks(run->kivi, g, 1, a->hd, tmp);
        void *panel = (char *)kp + (size_t)j * qk->k_bytes(a->hd);
        if (!keys)
            pack_some_keys(k, a, run, from + j, n - j < KIVI_GROUP ? n - j : KIVI_GROUP, panel);
        else if (qk == k->attn->qk_half)
            k->kivi->group_i16(run->kivi->bits_k, keys, a->hd, panel);
        else
            k->kivi->group(run->kivi->bits_k, keys, a->hd, panel);
    }
}

/* Packs the values of entries j..j+n-1, at most 16, as the packed entries from `at` on */
static void integer_values(const struct kern_vec *k, const struct attn *a, const struct kv_run *run,
                           int j, int n, int at, void *v)
{
    const char *row[16];
    const uint8_t *code[16];
    char tmp[16 * ROW_BYTES];
    uint8_t blocks[16 * VALUE_BLOCKS];
    int n_code = 0;
    const struct kern_rows rows = {
        .t = a->type_v, .n = 16, .row = row, .bytes = cb_kv_row_bytes(a->type_v, a->hd)
    };

    for (int i = 0; i < n; i++) {
        const int quantised = cb_kivi_row_of(run->kivi, 1, slot_of(run, j + i));
        if (quantised >= 0)
            code[n_code++] = value_blocks(run->kivi, quantised, a->hd, blocks + i * VALUE_BLOCKS);
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
    uint8_t tmp[VALUE_BLOCKS];

    if (cb_integer_values(k->attn, a, a->type_v)) {
        for (int j = 0; j < n; j += 16)
            integer_values(k, a, run, from + j, n - j < 16 ? n - j : 16, j, v);
        return;
    }
    for (int j = 0; j < n; j++, y += hd_pad) {
        const int slot = slot_of(run, from + j), row = cb_kivi_row_of(run->kivi, 1, slot);
        if (row < 0)
            k->decode(a->type_v, plain_row(a, run, 1, slot), a->hd, y);
        else
            k->kivi->value(run->kivi->bits_v, value_blocks(run->kivi, row, a->hd, tmp), a->hd, y);
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
    return t->run->kivi && !cb_kivi_in_planes(t->run->kivi) && k->kivi->logits && one_token(t->a);
}

enum { MAX_ROWS = SUB_TILES * MAX_TILE }; /* rows a block of logits */

/* The quantised values of entries j.., to prefetch while their keys are read; `other` if they are
 * not quantised */
static const uint8_t *values_ahead(const struct kv_run *run, int j, int hd, const uint8_t *other)
{
    const int row = cb_kivi_row_of(run->kivi, 1, slot_of(run, j));
    return row >= 0 ? values_at(run->kivi, row, hd) : other;
}

/* The same for keys, which are read after the previous block's values */
static const uint8_t *keys_ahead(const struct kv_run *run, int j, int hd, const uint8_t *other)
{
    const int row = j < run->n && !cb_kivi_in_planes(run->kivi) ? key_row(run, j) : -1;
    return row >= 0 ? keys_at(run->kivi, row / KIVI_GROUP, hd) : other;
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
    const int hd = t->a->hd, row = key_row(t->run, j), g = whole_group(t->run, j, n);
    const uint8_t *keys;
    uint8_t tmp[KEY_BLOCK / KIVI_GROUP * BLOCKS];
    float x[MAX_ROWS * KEY_BLOCK];
    int at[KEY_BLOCK], m = 1, n_group;

    if (g >= 0) {
        while (whole_group(t->run, j + m * KIVI_GROUP, n - m * KIVI_GROUP) == g + m)
            m++;
        keys = key_blocks(q, g, m, hd, tmp);
        k->kivi->logits(q->bits_k, keys, m, t->q + r, t->scale, rows, hd,
                        values_ahead(t->run, j, hd, keys), s);
        return m * KIVI_GROUP;
    }
    if (row >= 0) {
        m = scattered(t->run, j, n, at, &n_group);
        keys = key_blocks(q, row / KIVI_GROUP, n_group, hd, tmp);
        k->kivi->logits(q->bits_k, keys, n_group, t->q + r, t->scale, rows, hd, keys, x);
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
    return t->run->kivi && k->kivi->pv && one_token(t->a) && n == KEY_BLOCK && /* slots ascend */
           cb_kivi_row_of(t->run->kivi, 1, slot_of(t->run, from)) >= 0 &&
           cb_kivi_row_of(t->run->kivi, 1, slot_of(t->run, from + n - 1)) >= 0;
}

void cb_kivi_pv(const struct kern_vec *k, const struct tile *t, int from,
                const struct kern_soft *soft, float *o)
{
    const struct kv_kivi *q = t->run->kivi;
    const int hd = t->a->hd;
    const int scattered = t->run->idx || q->row_v || cb_kivi_group(q, 1) > KIVI_GROUP;
    const uint8_t *first = values_at(q, cb_kivi_row_of(q, 1, slot_of(t->run, from)), hd);
    const uint8_t *row[KEY_BLOCK];
    const size_t bytes = (size_t)(hd / KIVI_GROUP) * cb_kivi_block_bytes(q->bits_v);
    uint8_t tmp[KEY_BLOCK * VALUE_BLOCKS];

    for (int j = 0; !scattered && j < KEY_BLOCK; j++)
        row[j] = first + (size_t)j * bytes;
    for (int j = 0; scattered && j < KEY_BLOCK; j++)
        row[j] = value_blocks(q, cb_kivi_row_of(q, 1, slot_of(t->run, from + j)), hd,
                              tmp + (size_t)j * VALUE_BLOCKS);
    k->kivi->pv(q->bits_v, row, soft, hd, keys_ahead(t->run, from + KEY_BLOCK, hd, row[0]), o);
}
