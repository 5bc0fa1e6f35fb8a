/* SPDX-License-Identifier: MIT */
/* ngrams.c - embeddings of a token's last few tokens together, which one layer adds to the residual
 * streams (Qwen4-exp): the tables of their hashes in metadata, and their tensors. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "binder.h"
#include "device/recurrence.h"
#include "hparams.h"

/* Values from..to-1 of an integer array that has at least that many */
static int integers(const struct cb_model *m, const char *name, int n, int64_t min, int64_t *out)
{
    char key[128];

    for (int i = 0; i < n; i++) {
        const int got = cb_gguf_i64_at(m->gguf, cb_hp_key(m, name, &key), (uint64_t)i, &out[i]);
        if (got < 0)
            return got;
        if (!got)
            return cb_fail(CB_EFORMAT, "%s: key %s: missing", cb_gguf_path(m->gguf), key);
        if (out[i] < min)
            return cb_fail(CB_EFORMAT, "%s: key %s: value %d is %lld, less than %lld",
                           cb_gguf_path(m->gguf), key, i, (long long)out[i], (long long)min);
    }
    return CB_OK;
}

int cb_hp_ngram_layer(const struct cb_model *m, int *out)
{
    char key[128];
    const struct gguf_kv *kv = cb_gguf_find(m->gguf, cb_hp_key(m, "ple.layers", &key));
    int64_t l;

    *out = -1;
    if (!kv || !(m->arch->has & HAS_STREAMS) || (kv->type == GGUF_ARRAY && !kv->n))
        return CB_OK;
    TRY(integers(m, "ple.layers", 1, 0, &l));
    if (kv->n != 1)
        return cb_fail(CB_EUNSUPPORTED, "%s: key %s: %llu layers, of which only one is supported",
                       cb_gguf_path(m->gguf), key, (unsigned long long)kv->n);
    if (l >= m->hp.n_layer)
        return cb_fail(CB_EFORMAT, "%s: key %s: layer %lld of %d", cb_gguf_path(m->gguf), key,
                       (long long)l, m->hp.n_layer);
    *out = (int)l;
    return CB_OK;
}

static int read_params(const struct cb_model *m, struct ngrams *x)
{
    int eos = 0;

    TRY(cb_hp_int(m, "ple.ngram_size", REQUIRED, 2, NGRAM_MOST, &x->n_most));
    TRY(cb_hp_int(m, "ple.heads_per_ngram", REQUIRED, 1, NGRAM_HEADS / (x->n_most - 1), &x->per));
    TRY(cb_hp_int(m, "ple.conv_kernel", REQUIRED, 2, CONV_MOST, &x->n_tap));
    TRY(cb_hp_int(m, "ple.eos_token_id", REQUIRED, 0, INT32_MAX, &eos));
    TRY(cb_hp_int(m, "embedding_length_per_layer_input", REQUIRED, 1, 1 << 16, &x->dim));
    x->eos = eos;
    x->n_head = (x->n_most - 1) * x->per;
    TRY(integers(m, "ple.layer_multipliers", x->n_most, INT64_MIN, x->mult));
    TRY(integers(m, "ple.head_offsets", x->n_head, 0, x->offset));
    return integers(m, "ple.head_vocab_sizes", x->n_head, 1, x->size);
}

/* The rows of all heads lie in one table. */
static int table(struct binder *b, struct ngrams *x)
{
    static const char name[] = "per_layer_token_embd.weight";
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, name, &t));
    if (t->dim[1] > INT32_MAX)
        return cb_fail(CB_EUNSUPPORTED, "%s: tensor %s: %lld rows are too many",
                       cb_gguf_path(b->m->gguf), name, (long long)t->dim[1]);
    TRY(cb_bind_matrix(b, name, x->dim, (int)t->dim[1], &x->table));
    for (int h = 0; h < x->n_head; h++)
        if (x->size[h] > t->dim[1] || x->offset[h] > t->dim[1] - x->size[h])
            return cb_fail(
                CB_EFORMAT,
                "%s: key %s.ple.head_offsets: head %d has %lld rows from %lld on, of %lld",
                cb_gguf_path(b->m->gguf), b->m->arch->name, h, (long long)x->size[h],
                (long long)x->offset[h], (long long)t->dim[1]);
    return CB_OK;
}

/* Taps [n_stream * n_embd][n_tap] in the file -> x->tap[n_tap][n_stream * n_embd] */
static int taps(struct binder *b, int l, int wide, struct ngrams *x)
{
    const struct gguf_tensor *t;
    float *w = NULL;

    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "ple_conv1d.weight"), &t));
    TRY(cb_bind_check_shape(b, t, b->name, x->n_tap, wide, 1));
    TRY(cb_bind_f32(b, t, (int64_t)wide * x->n_tap, &w));
    if (!(x->tap = cb_calloc((size_t)wide * (size_t)x->n_tap, sizeof *x->tap))) {
        free(w);
        return CB_ENOMEM;
    }
    for (int c = 0; c < wide; c++)
        for (int j = 0; j < x->n_tap; j++)
            x->tap[(size_t)j * (size_t)wide + (size_t)c] =
                w[(size_t)c * (size_t)x->n_tap + (size_t)j];
    free(w);
    return CB_OK;
}

int cb_ngrams_bind(struct binder *b, int l, struct layer *y)
{
    const struct hparams *hp = &b->m->hp;
    const int wide = hp->n_stream * hp->n_embd;
    struct ngrams *x = y->ngrams = cb_calloc(1, sizeof *x);
    int n;

    if (!x)
        return CB_ENOMEM;
    TRY(read_params(b->m, x));
    TRY(table(b, x));
    n = x->n_head * x->dim;
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ple_key.weight"), n, wide, &x->key));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ple_value.weight"), n, hp->n_embd, &x->value));
    TRY(cb_stream_norm(b, cb_bind_in_layer(b, l, "ple_norm_key.weight"), &x->key_norm));
    TRY(cb_stream_norm(b, cb_bind_in_layer(b, l, "ple_norm_query.weight"), &x->query_norm));
    TRY(cb_stream_norm(b, cb_bind_in_layer(b, l, "ple_norm_conv.weight"), &x->conv_norm));
    return taps(b, l, wide, x);
}

void cb_ngrams_rows(const struct ngrams *x, const int32_t *last, int32_t *row)
{
    uint64_t mixed = (uint64_t)last[0] * (uint64_t)x->mult[0];

    for (int n = 1; n < x->n_most; n++) {
        mixed ^= (uint64_t)last[n] * (uint64_t)x->mult[n];
        for (int h = (n - 1) * x->per; h < n * x->per; h++) {
            const int64_t left = (int64_t)mixed % x->size[h];
            row[h] = (int32_t)(x->offset[h] + (left < 0 ? left + x->size[h] : left));
        }
    }
}

void cb_ngrams_free(struct ngrams *x)
{
    if (!x)
        return;
    cb_bind_free_norm(&x->key_norm);
    cb_bind_free_norm(&x->query_norm);
    cb_bind_free_norm(&x->conv_norm);
    free(x->tap);
    free(x);
}
