/* SPDX-License-Identifier: MIT */
/* expanded_latents.c - prompts of latent attention by keys and values of each head. A query of 576
 * numbers that reads the latents costs three times the products of one of 192 that reads its head's
 * own keys and values. Making these costs each stored row a product with all heads' matrices, once
 * a prompt: so long prompts make them, and what they read stays what the bank holds. They lie in
 * work space, a layer's at a time. */
#include "expanded_latents.h"

#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "base/ints.h"
#include "product.h"

enum {
    LEAST = 512, /* tokens of a feed */
    HEADS = 8,   /* that a call multiplies */
};
static const uint64_t room_least = 256 << 20; /* bytes; where a sixteenth of the weights is less */

struct expanded_latents {
    int on;     /* 1: the rows in work attend so */
    int layer;  /* whose rows these are */
    int n, cap; /* rows there are, and room for */
    enum kv_type type;
    uint8_t *k, *v;       /* [n_head][cap] rows of cb_expanded_hd() */
    struct weight *key;   /* [n_head] [key][rank] of the layer, loaded */
    char *raw;            /* their numbers */
    float *row, *low;     /* [chunk][hd] stored rows, [chunk][rank] their latents */
    float *new_k, *new_v; /* [chunk][HEADS][cb_expanded_hd()] */
    struct kv_run *run;   /* [n_head] */
};

/* ---- the choice ---- */

static int possible(const struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;

    return cb_session_expands(s) && !s->dev->ops->memory && !s->model->max_rank &&
           hp->temperature.scale == 0 && hp->attn_cap == 0 &&
           hp->latent.value <= cb_expanded_hd(hp) && cb_expanded_hd(hp) < hp->hd;
}

static enum kv_type type_of(const struct cb_session *s)
{
    return s->bank.type_k == KV_F32 ? KV_F32 : KV_F16;
}

static uint64_t rows_bytes(const struct cb_session *s, int n)
{
    const struct hparams *hp = &s->model->hp;

    return 2 * (uint64_t)hp->n_head * (uint64_t)n * cb_kv_row_bytes(type_of(s), cb_expanded_hd(hp));
}

/* n tokens after `before` others: attention makes 32 products an instruction, the matrices of keys
 * 16 and those of values 64. */
static int pays(const struct cb_session *s, int before, int n)
{
    const struct hparams *hp = &s->model->hp;
    const double pairs = (double)n * before + 0.5 * n * n, rows = (double)before + n;
    const double saved = 2.0 * (hp->hd - cb_expanded_hd(hp)) * pairs / 32;
    const double cost = rows * hp->latent.rank * (hp->latent.key / 16.0 + hp->latent.value / 64.0);
    const uint64_t room = s->model->weights_bytes / 16;

    return n >= LEAST && saved > 2 * cost &&
           rows_bytes(s, before + n) <= (room > room_least ? room : room_least);
}

/* ---- work space ---- */

static size_t matrices_bytes(const struct hparams *hp)
{
    return (size_t)hp->n_head * (size_t)hp->latent.key * (size_t)hp->latent.rank * sizeof(float);
}

static size_t chunk_floats(const struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;

    return (size_t)s->chunk * (size_t)(hp->hd + hp->latent.rank + 2 * HEADS * cb_expanded_hd(hp));
}

size_t cb_expanded_bytes(const struct cb_session *s, int n_feed, int n_most)
{
    int any = 0;

    for (int l = 0; possible(s) && l < s->model->hp.n_layer && !any; l++)
        any = s->model->layer[l].latent && cb_attend_reads_all(&s->attention, l);
    if (!any || !pays(s, max_int(0, n_most - n_feed), n_feed))
        return 0;
    return (size_t)rows_bytes(s, n_most) + 2 * matrices_bytes(&s->model->hp) +
           chunk_floats(s) * sizeof(float);
}

static void unload(struct device *d, struct expanded_latents *x, int n_head)
{
    for (int h = 0; x->key && h < n_head; h++)
        if (x->key[h].packed)
            d->ops->unload(d, &x->key[h]);
}

static void free_rows(struct expanded_latents *x)
{
    free(x->k);
    free(x->v);
    x->k = x->v = NULL;
    x->cap = 0;
}

void cb_expanded_close(struct cb_session *s)
{
    struct expanded_latents *x = s->w.expanded;

    if (!x)
        return;
    unload(s->dev, x, s->model->hp.n_head);
    free_rows(x);
    free(x->key);
    free(x->raw);
    free(x->row);
    free(x->low);
    free(x->new_k);
    free(x->new_v);
    free(x->run);
    free(x);
    s->w.expanded = NULL;
}

static int open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const size_t c = (size_t)s->chunk, nh = (size_t)hp->n_head;
    const size_t heads = HEADS * (size_t)cb_expanded_hd(hp);
    struct expanded_latents *x = s->w.expanded = cb_calloc(1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    x->layer = -1;
    x->type = type_of(s);
    x->key = cb_calloc(nh, sizeof *x->key);
    x->run = cb_calloc(nh, sizeof *x->run);
    x->raw = cb_alloc_aligned(matrices_bytes(hp), 1);
    x->row = cb_alloc_aligned(c * (size_t)hp->hd, sizeof *x->row);
    x->low = cb_alloc_aligned(c * (size_t)hp->latent.rank, sizeof *x->low);
    x->new_k = cb_alloc_aligned(c * heads, sizeof *x->new_k);
    x->new_v = cb_alloc_aligned(c * heads, sizeof *x->new_v);
    if (!x->key || !x->run || !x->raw || !x->row || !x->low || !x->new_k || !x->new_v)
        return CB_ENOMEM;
    memset(x->new_v, 0, c * heads * sizeof *x->new_v); /* values end before their rows do */
    return CB_OK;
}

static int fit(struct cb_session *s, int n)
{
    struct expanded_latents *x = s->w.expanded;
    const size_t bytes = (size_t)rows_bytes(s, n) / 2;

    if (n <= x->cap)
        return CB_OK;
    free_rows(x);
    x->k = cb_alloc_aligned(bytes, 1);
    x->v = cb_alloc_aligned(bytes, 1);
    if (!x->k || !x->v)
        return CB_ENOMEM;
    x->cap = n;
    return CB_OK;
}

/* ---- a layer's matrices ---- */

struct transposition {
    const struct latent *from;
    struct expanded_latents *to;
    int key, rank;
};

/* Head h's matrix, [rank][key] as queries are multiplied by it, becomes [key][rank]. */
static void transpose_head(void *ctx, int h, int thread)
{
    const struct transposition *t = ctx;
    const struct weight *w = &t->from->absorb[h];
    struct weight *y = &t->to->key[h];
    float row[KV_MAX_HD];
    float *to = (float *)(void *)t->to->raw + (size_t)h * (size_t)t->key * (size_t)t->rank;

    (void)thread;
    for (int r = 0; r < t->rank; r++) {
        cb_dtype[w->type].to_f32((const char *)w->raw + (size_t)r * cb_row_bytes(w->type, t->key),
                                 row, t->key);
        for (int c = 0; c < t->key; c++)
            to[(size_t)c * (size_t)t->rank + (size_t)r] = row[c];
    }
    *y = (struct weight){ .type = DT_F32, .n_in = t->rank, .n_out = t->key, .raw = to };
}

static int begin_layer(struct cb_session *s, int l)
{
    const struct hparams *hp = &s->model->hp;
    struct expanded_latents *x = s->w.expanded;
    struct transposition t = { s->model->layer[l].latent, x, hp->latent.key, hp->latent.rank };

    x->n = 0;
    if (x->layer == l)
        return CB_OK;
    unload(s->dev, x, hp->n_head);
    x->layer = l;
    cb_par_for(s->dev->par, hp->n_head, transpose_head, &t);
    for (int h = 0; h < hp->n_head; h++)
        TRY(s->dev->ops->load(s->dev, &x->key[h]));
    return CB_OK;
}

int cb_expanded_begin(const struct rows *r, int l)
{
    struct cb_session *s = r->s[0];
    const struct store *st = &s->bank.store[l];
    const int before = s->bank.n_seen;

    if (s->w.expanded)
        s->w.expanded->on = 0;
    if (s->bank.decoding || r->n > 1 || r->one_by_one || r->pos || !possible(s) ||
        !cb_attend_reads_all(&s->attention, l) || !pays(s, before, s->bank.n_feed) ||
        !cb_store_is_whole(st, r->pos0) || st->mixed[0])
        return 0;
    if (!s->w.expanded)
        TRY(open(s));
    if (r->pos0 == before) {
        TRY(fit(s, before + s->bank.n_feed));
        TRY(begin_layer(s, l));
    }
    s->w.expanded->on = 1;
    return 1;
}

int cb_expanded_is_on(const struct cb_session *s)
{
    return s->w.expanded && s->w.expanded->on;
}

/* ---- keys and values ---- */

/* m rows of all heads h..h+n-1 that new_k and new_v hold become rows from.. */
static void put_heads(struct cb_session *s, int h, int n, int from, int m)
{
    struct expanded_latents *x = s->w.expanded;
    const int hd = cb_expanded_hd(&s->model->hp), stride = HEADS * hd;
    const size_t row = cb_kv_row_bytes(x->type, hd);

    for (int i = 0; i < n; i++) {
        const size_t at = ((size_t)(h + i) * (size_t)x->cap + (size_t)from) * row;
        s->dev->ops->kv_encode(s->dev, x->type, x->new_k + i * hd, m, stride, hd, x->k + at);
        s->dev->ops->kv_encode(s->dev, x->type, x->new_v + i * hd, m, stride, hd, x->v + at);
    }
}

/* The latents of m rows, x->low, give heads h..h+n-1 keys and values, and the rows their rotated
 * numbers. */
static void make_heads(struct cb_session *s, const struct latent *y, int h, int n, int m, int bits)
{
    const struct hparams *hp = &s->model->hp;
    struct expanded_latents *x = s->w.expanded;
    const int hd = cb_expanded_hd(hp), stride = HEADS * hd;
    struct mm k[HEADS], v[HEADS];

    for (int i = 0; i < n; i++) {
        k[i] = (struct mm){ &x->key[h + i], NULL, x->new_k + i * hd + hp->n_rot, stride, 0, bits };
        v[i] = (struct mm){ &y->expand[h + i], NULL, x->new_v + i * hd, stride, 0, bits };
        cb_device_copy_rows(s->dev, x->new_k + i * hd, (size_t)stride * sizeof *x->new_k, x->row,
                            (size_t)hp->hd * sizeof *x->row, (size_t)hp->n_rot * sizeof *x->row, m);
    }
    cb_product(s, k, n, x->low, m);
    cb_product(s, v, n, x->low, m);
}

/* Keys and values of the layer's first n rows */
static void expand(struct cb_session *s, int l, int n, int bits)
{
    const struct hparams *hp = &s->model->hp;
    const struct latent *y = s->model->layer[l].latent;
    const struct kv_run stored = cb_store_run(&s->bank.store[l], 0, 0, n);
    const size_t row = cb_kv_row_bytes(s->bank.type_k, hp->hd), low = sizeof(float);
    struct expanded_latents *x = s->w.expanded;

    for (int m; x->n < n; x->n += m) {
        m = min_int(s->chunk, n - x->n);
        s->dev->ops->kv_decode(s->dev, s->bank.type_k, (const char *)stored.k + (size_t)x->n * row,
                               NULL, m, hp->hd, x->row);
        cb_device_copy_rows(s->dev, x->low, (size_t)hp->latent.rank * low, x->row + hp->n_rot,
                            (size_t)hp->hd * low, (size_t)hp->latent.rank * low, m);
        for (int h = 0; h < hp->n_head; h += HEADS) {
            const int heads = min_int(HEADS, hp->n_head - h);
            make_heads(s, y, h, heads, m, bits);
            put_heads(s, h, heads, x->n, m);
        }
    }
}

/* ---- attention ---- */

int cb_expanded_attend(const struct rows *r, const struct attention_call *call, int bits)
{
    struct cb_session *s = r->s[0];
    const struct hparams *hp = &s->model->hp;
    const struct chunk *c = &call->c;
    const int hd = cb_expanded_hd(hp), n = c->pos0 + c->n;
    struct expanded_latents *x = s->w.expanded;
    const size_t head = (size_t)x->cap * cb_kv_row_bytes(x->type, hd);
    const struct attn at = { .n_tok = c->n,
                             .n_head = hp->n_head,
                             .n_kv = hp->n_head,
                             .hd = hd,
                             .scale = hp->attn_scale,
                             .causal = 1,
                             .prompt = 1,
                             .type_k = x->type,
                             .type_v = x->type,
                             .run = x->run,
                             .q = c->q,
                             .q_stride = c->stride,
                             .out = call->out };

    TRY(cb_attend_store(call));
    expand(s, c->l, n, bits);
    for (int h = 0; h < hp->n_head; h++)
        x->run[h] =
            (struct kv_run){ .k = x->k + (size_t)h * head, .v = x->v + (size_t)h * head, .n = n };
    s->dev->ops->attention(s->dev, &at, 1);
    return CB_OK;
}

const float *cb_expanded_values(struct cb_session *s, int n)
{
    const struct hparams *hp = &s->model->hp;
    const int hd = cb_expanded_hd(hp), value = hp->latent.value;
    const size_t number = sizeof(float);

    if (!cb_expanded_is_on(s))
        return NULL;
    for (int h = 0; h < hp->n_head; h++)
        cb_device_copy_rows(s->dev, s->w.qkv + h * value, (size_t)(hp->n_head * value) * number,
                            s->w.att + h * hd, (size_t)(hp->n_head * hd) * number,
                            (size_t)value * number, n);
    return s->w.qkv;
}
