/* SPDX-License-Identifier: MIT */
/* gguf_read.c - typed reads of a GGUF file's metadata. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "gguf.h"

static const char *const type_name[] = {
    [GGUF_U8] = "u8",       [GGUF_I8] = "i8",   [GGUF_U16] = "u16", [GGUF_I16] = "i16",
    [GGUF_U32] = "u32",     [GGUF_I32] = "i32", [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
    [GGUF_U64] = "u64",     [GGUF_I64] = "i64", [GGUF_F64] = "f64", [GGUF_STRING] = "string",
    [GGUF_ARRAY] = "array",
};

static int wrong_type(const struct gguf *g, const char *key, const char *want, enum gguf_type got)
{
    return cb_fail(CB_EFORMAT, "%s: key %s: is of type %s, not %s", cb_gguf_path(g), key,
                   type_name[got], want);
}

static int out_of_range(const struct gguf *g, const char *key)
{
    return cb_fail(CB_EFORMAT, "%s: key %s: the value is out of range", cb_gguf_path(g), key);
}

#define LOAD(type, p)                                                                              \
    __extension__({                                                                                \
        type v_;                                                                                   \
        memcpy(&v_, (p), sizeof v_);                                                               \
        v_;                                                                                        \
    })

/* 1 = an integer that fits, 0 = no integer, -1 = does not fit */
static int load_int(enum gguf_type type, const void *p, int64_t *out)
{
    switch (type) {
    case GGUF_U8:
        *out = LOAD(uint8_t, p);
        return 1;
    case GGUF_I8:
        *out = LOAD(int8_t, p);
        return 1;
    case GGUF_U16:
        *out = LOAD(uint16_t, p);
        return 1;
    case GGUF_I16:
        *out = LOAD(int16_t, p);
        return 1;
    case GGUF_U32:
        *out = LOAD(uint32_t, p);
        return 1;
    case GGUF_I32:
        *out = LOAD(int32_t, p);
        return 1;
    case GGUF_U64:
    case GGUF_I64:
        *out = LOAD(int64_t, p);
        return type == GGUF_U64 && *out < 0 ? -1 : 1;
    default:
        return 0;
    }
}

int cb_gguf_i64(const struct gguf *g, const char *key, int64_t *out)
{
    const struct gguf_kv *kv = cb_gguf_find(g, key);
    int64_t v;
    int got;

    if (!kv)
        return 0;
    got = load_int(kv->type, kv->data, &v);
    if (!got)
        return wrong_type(g, key, "an integer", kv->type);
    if (got < 0)
        return out_of_range(g, key);
    *out = v;
    return 1;
}

int cb_gguf_f32(const struct gguf *g, const char *key, float *out)
{
    const struct gguf_kv *kv = cb_gguf_find(g, key);
    double v;

    if (!kv)
        return 0;
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64)
        return wrong_type(g, key, "f32", kv->type);
    v = cb_gguf_array_num(kv, 0);
    /* No value read by this function may be NaN or infinite. */
    if (!isfinite(v) || fabs(v) > 3.4028234663852886e38)
        return out_of_range(g, key);
    *out = (float)v;
    return 1;
}

int cb_gguf_bool(const struct gguf *g, const char *key, int *out)
{
    const struct gguf_kv *kv = cb_gguf_find(g, key);

    if (!kv)
        return 0;
    if (kv->type != GGUF_BOOL)
        return wrong_type(g, key, "bool", kv->type);
    *out = *(const unsigned char *)kv->data != 0;
    return 1;
}

int cb_gguf_string(const struct gguf *g, const char *key, struct gguf_str *out)
{
    const struct gguf_kv *kv = cb_gguf_find(g, key);

    if (!kv)
        return 0;
    if (kv->type != GGUF_STRING)
        return wrong_type(g, key, "string", kv->type);
    *out = cb_gguf_array_str(kv, 0);
    return 1;
}

int cb_gguf_array(const struct gguf *g, const char *key, enum gguf_type elem,
                  const struct gguf_kv **out)
{
    const struct gguf_kv *kv = cb_gguf_find(g, key);

    if (!kv)
        return 0;
    if (kv->type != GGUF_ARRAY)
        return wrong_type(g, key, "array", kv->type);
    if (kv->elem != elem)
        return cb_fail(CB_EFORMAT, "%s: key %s: is an array of %s, not of %s", cb_gguf_path(g), key,
                       type_name[kv->elem], type_name[elem]);
    *out = kv;
    return 1;
}

struct gguf_str cb_gguf_array_str(const struct gguf_kv *kv, uint64_t i)
{
    const uint64_t at = kv->str_at[i] + sizeof(uint64_t); /* after the length */

    return (struct gguf_str){ (const char *)kv->data + at, (size_t)(kv->str_at[i + 1] - at) };
}

static const unsigned char num_size[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

int cb_gguf_i64_at(const struct gguf *g, const char *key, uint64_t i, int64_t *out)
{
    const struct gguf_kv *kv = cb_gguf_find(g, key);
    int64_t v;
    int got;

    if (!kv)
        return 0;
    if (kv->type != GGUF_ARRAY)
        return wrong_type(g, key, "array", kv->type);
    if (kv->elem == GGUF_STRING || kv->elem == GGUF_ARRAY)
        return wrong_type(g, key, "an array of integers", kv->type);
    if (i >= kv->n)
        return out_of_range(g, key);
    got = load_int(kv->elem, (const char *)kv->data + i * num_size[kv->elem], &v);
    if (!got)
        return wrong_type(g, key, "an array of integers", kv->type);
    if (got < 0)
        return out_of_range(g, key);
    *out = v;
    return 1;
}

double cb_gguf_array_num(const struct gguf_kv *kv, uint64_t i)
{
    const char *p = (const char *)kv->data + i * num_size[kv->elem];
    int64_t v = 0;

    switch (kv->elem) {
    case GGUF_F32:
        return LOAD(float, p);
    case GGUF_F64:
        return LOAD(double, p);
    case GGUF_BOOL:
        return *p;
    case GGUF_U64:
        return (double)LOAD(uint64_t, p);
    default:
        load_int(kv->elem, p, &v);
        return (double)v;
    }
}
