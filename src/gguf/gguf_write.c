/* SPDX-License-Identifier: MIT */
/* gguf_write.c - builds the header of a GGUF file in memory. */
#include "gguf_write.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"

int cb_gguf_append(struct gguf_bytes *b, const void *p, size_t n)
{
    TRY(cb_grow(&b->p, &b->cap, b->n + n, 1));
    if (n && p)
        memcpy(b->p + b->n, p, n);
    else if (n)
        memset(b->p + b->n, 0, n);
    b->n += n;
    return 0;
}

void cb_gguf_writer_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){ .version = 3, .alignment = 32 };
}

void cb_gguf_writer_free(struct gguf_writer *w)
{
    free(w->kv.p);
    free(w->info.p);
    *w = (struct gguf_writer){ .err = 0 };
}

/* ---- metadata ---- */

static void put(struct gguf_writer *w, struct gguf_bytes *b, const void *p, size_t n)
{
    if (!w->err)
        w->err = cb_gguf_append(b, p, n);
}

static void put_u32(struct gguf_writer *w, struct gguf_bytes *b, uint32_t v)
{
    put(w, b, &v, sizeof v);
}

static void put_u64(struct gguf_writer *w, struct gguf_bytes *b, uint64_t v)
{
    put(w, b, &v, sizeof v);
}

static void put_str(struct gguf_writer *w, struct gguf_bytes *b, struct gguf_str s)
{
    put_u64(w, b, s.n);
    put(w, b, s.s, s.n);
}

static void put_key(struct gguf_writer *w, struct gguf_str key, enum gguf_type type)
{
    put_str(w, &w->kv, key);
    put_u32(w, &w->kv, type);
    w->n_kv++;
}

static struct gguf_str str(const char *s)
{
    return (struct gguf_str){ s, strlen(s) };
}

static size_t type_bytes(enum gguf_type type)
{
    static const unsigned char bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return bytes[type];
}

void cb_gguf_put_i64(struct gguf_writer *w, const char *key, enum gguf_type type, int64_t v)
{
    put_key(w, str(key), type);
    put(w, &w->kv, &v, type_bytes(type)); /* little endian: the low bytes come first */
}

void cb_gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    put_key(w, str(key), GGUF_F32);
    put(w, &w->kv, &v, sizeof v);
}

void cb_gguf_put_bool(struct gguf_writer *w, const char *key, int v)
{
    const unsigned char b = v != 0;

    put_key(w, str(key), GGUF_BOOL);
    put(w, &w->kv, &b, 1);
}

void cb_gguf_put_string(struct gguf_writer *w, const char *key, const char *s)
{
    put_key(w, str(key), GGUF_STRING);
    put_str(w, &w->kv, str(s));
}

void cb_gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem,
                       const void *data, uint64_t n)
{
    put_key(w, str(key), GGUF_ARRAY);
    put_u32(w, &w->kv, elem);
    put_u64(w, &w->kv, n);
    put(w, &w->kv, data, (size_t)n * type_bytes(elem));
}

void cb_gguf_put_strings(struct gguf_writer *w, const char *key, const struct gguf_str *s,
                         uint64_t n)
{
    put_key(w, str(key), GGUF_ARRAY);
    put_u32(w, &w->kv, GGUF_STRING);
    put_u64(w, &w->kv, n);
    for (uint64_t i = 0; i < n; i++)
        put_str(w, &w->kv, s[i]);
}

void cb_gguf_put_copy(struct gguf_writer *w, const struct gguf_kv *kv)
{
    put_key(w, kv->key, kv->type);
    if (kv->type == GGUF_ARRAY) {
        put_u32(w, &w->kv, kv->elem);
        put_u64(w, &w->kv, kv->n);
    }
    if (kv->elem == GGUF_STRING) {
        for (uint64_t i = 0; i < kv->n; i++)
            put_str(w, &w->kv, cb_gguf_array_str(kv, i));
    } else {
        put(w, &w->kv, kv->data, (size_t)kv->n * type_bytes(kv->elem));
    }
}

/* ---- tensors ---- */

void cb_gguf_put_tensor(struct gguf_writer *w, struct gguf_str name, enum dtype type, int n_dim,
                        const int64_t *dim)
{
    int64_t n = 1;
    uint64_t size;

    put_str(w, &w->info, name);
    put_u32(w, &w->info, (uint32_t)n_dim);
    for (int i = 0; i < n_dim; i++) {
        put_u64(w, &w->info, (uint64_t)dim[i]);
        n *= dim[i];
    }
    put_u32(w, &w->info, cb_dtype[type].ggml_id);
    put_u64(w, &w->info, w->data_bytes);
    size = cb_row_bytes(type, n);
    w->data_bytes += size + cb_gguf_pad(w, size);
    w->n_tensor++;
}

int cb_gguf_put_header(struct gguf_writer *w, struct gguf_bytes *out)
{
    *out = (struct gguf_bytes){ .p = NULL };
    put(w, out, "GGUF", 4);
    put_u32(w, out, w->version);
    put_u64(w, out, w->n_tensor);
    put_u64(w, out, w->n_kv);
    put(w, out, w->kv.p, w->kv.n);
    put(w, out, w->info.p, w->info.n);
    put(w, out, NULL, cb_gguf_pad(w, out->n));
    if (w->err) {
        free(out->p);
        out->p = NULL;
    }
    return w->err;
}
