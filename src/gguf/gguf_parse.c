/* SPDX-License-Identifier: MIT */
/* gguf_parse.c - reads and checks a GGUF file's whole structure before any other code sees it.
 *
 * The file: magic, version, counts, key-value pairs, tensor infos, padding, tensor data. A length
 * or count is only a claim until its bytes have been read, so tables grow with the data read, not
 * to the size that the header claims. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "gguf_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are read as they lie in the file");

enum { MAX_NAME = 65535, ALIGNMENT_DEFAULT = 32, ALIGNMENT_MIN = 8, SHOWN = 80 };

/* A place in the file; bytes before `at` were checked. */
struct cursor {
    const struct gguf *g;
    size_t at;
};

/* ---- messages ---- */

/* A name from the file as one short line of printable text. */
static const char *show(struct gguf_str name, char buf[SHOWN])
{
    size_t n = 0;

    for (; n < name.n && n < SHOWN - 4; n++) {
        const unsigned char c = (unsigned char)name.s[n];
        buf[n] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    memcpy(buf + n, n < name.n ? "..." : "", n < name.n ? 4 : 1);
    return buf;
}

static int bad_key(const struct gguf *g, struct gguf_str key, const char *why)
{
    char buf[SHOWN];

    return cb_fail(CB_EFORMAT, "%s: key %s: %s", g->path, show(key, buf), why);
}

static int bad_tensor(const struct gguf *g, struct gguf_str name, const char *why)
{
    char buf[SHOWN];

    return cb_fail(CB_EFORMAT, "%s: tensor %s: %s", g->path, show(name, buf), why);
}

/* ---- bytes ---- */

/* The next n bytes; NULL if the file ends before them. */
static const unsigned char *take_bytes(struct cursor *c, uint64_t n)
{
    const unsigned char *p = c->g->map + c->at;

    if (n > c->g->size - c->at)
        return NULL;
    c->at += (size_t)n;
    return p;
}

static int take_u32(struct cursor *c, uint32_t *out)
{
    const unsigned char *p = take_bytes(c, sizeof *out);

    if (p)
        memcpy(out, p, sizeof *out);
    return p != NULL;
}

static int take_u64(struct cursor *c, uint64_t *out)
{
    const unsigned char *p = take_bytes(c, sizeof *out);

    if (p)
        memcpy(out, p, sizeof *out);
    return p != NULL;
}

static int take_str(struct cursor *c, struct gguf_str *out)
{
    uint64_t n;
    const unsigned char *p;

    if (!take_u64(c, &n) || !(p = take_bytes(c, n)))
        return 0;
    out->s = (const char *)p;
    out->n = (size_t)n;
    return 1;
}

/* ---- sorted tables of names: both structs begin with their name ---- */

/* Sorts the table's names; *dup: an entry whose name occurs twice, or NULL. */
static int sort_names(const void *table, uint64_t n, size_t size, const struct gguf_str ***out,
                      const struct gguf_str **dup)
{
    const struct gguf_str **e;

    *dup = NULL;
    *out = e = cb_calloc(n ? n : 1, sizeof *e);
    if (!e)
        return CB_ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        e[i] = (const void *)((const char *)table + i * size);
    qsort(e, n, sizeof *e, cb_gguf_cmp_name);
    for (uint64_t i = 1; i < n && !*dup; i++)
        if (!cb_gguf_cmp_name(&e[i - 1], &e[i]))
            *dup = e[i];
    return 0;
}

/* ---- metadata ---- */

static const unsigned char type_bytes[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,     [GGUF_U16] = 2,   [GGUF_I16] = 2, [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4,    [GGUF_BOOL] = 1,  [GGUF_U64] = 8, [GGUF_I64] = 8,
    [GGUF_F64] = 8, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0, /* of no fixed size */
};

/* One string or an array of them: records where each begins. */
static int read_strings(struct cursor *c, struct gguf_kv *kv)
{
    const size_t first = c->at;
    struct gguf_str s;
    uint64_t *at = NULL;
    int err;

    for (uint64_t i = 0; !(err = cb_grow_by_one(&at, i, sizeof *at)); i++) {
        at[i] = c->at - first;
        if (i == kv->n)
            break;
        if (!take_str(c, &s)) {
            err = bad_key(c->g, kv->key, "the file ends inside of its strings");
            break;
        }
    }
    kv->str_at = at;
    return err;
}

static int read_values(struct cursor *c, struct gguf_kv *kv)
{
    const size_t size = type_bytes[kv->elem];

    if (kv->n > (c->g->size - c->at) / size)
        return bad_key(c->g, kv->key, "the file ends inside of its values");
    take_bytes(c, kv->n * size);
    for (uint64_t i = 0; kv->elem == GGUF_BOOL && i < kv->n; i++)
        if (((const unsigned char *)kv->data)[i] > 1)
            return bad_key(c->g, kv->key, "a truth value is neither 0 nor 1");
    return 0;
}

/* Key i of n. */
static int read_kv(struct cursor *c, uint64_t i, uint64_t n, struct gguf_kv *kv)
{
    const struct gguf *g = c->g;
    char buf[SHOWN];
    uint32_t type, elem;

    if (!take_str(c, &kv->key))
        return cb_fail(CB_EFORMAT, "%s: the file ends at key %" PRIu64 " of %" PRIu64, g->path, i,
                       n);
    if (!kv->key.n || kv->key.n > MAX_NAME)
        return cb_fail(CB_EFORMAT, "%s: key %" PRIu64 " has a name of %zu bytes", g->path, i,
                       kv->key.n);
    kv->n = 1;
    if (!take_u32(c, &type))
        return bad_key(g, kv->key, "the file ends before its type");
    elem = type;
    if (type == GGUF_ARRAY && (!take_u32(c, &elem) || !take_u64(c, &kv->n)))
        return bad_key(g, kv->key, "the file ends before its length");
    if (type == GGUF_ARRAY && elem == GGUF_ARRAY)
        return cb_fail(CB_EUNSUPPORTED, "%s: key %s: arrays of arrays are not supported", g->path,
                       show(kv->key, buf));
    if (type > GGUF_F64 || elem > GGUF_F64)
        return cb_fail(CB_EFORMAT, "%s: key %s: unknown type %" PRIu32, g->path, show(kv->key, buf),
                       type > GGUF_F64 ? type : elem);
    kv->type = type;
    kv->elem = elem;
    kv->data = g->map + c->at;
    return elem == GGUF_STRING ? read_strings(c, kv) : read_values(c, kv);
}

static int read_metadata(struct gguf *g, struct cursor *c, uint64_t n)
{
    const struct gguf_str *dup;
    int64_t align = ALIGNMENT_DEFAULT;

    for (uint64_t i = 0; i < n; i++) {
        TRY(cb_grow_by_one(&g->kv, i, sizeof *g->kv));
        g->kv[i] = (struct gguf_kv){ .str_at = NULL };
        g->n_kv = i + 1; /* the entries that close must free */
        TRY(read_kv(c, i, n, &g->kv[i]));
    }
    TRY(sort_names(g->kv, g->n_kv, sizeof *g->kv, &g->by_key, &dup));
    if (dup)
        return bad_key(g, *dup, "occurs twice");
    TRY(cb_gguf_i64(g, "general.alignment", &align));
    if (align < ALIGNMENT_MIN || align > UINT32_MAX || (align & (align - 1)))
        return cb_fail(CB_EFORMAT,
                       "%s: key general.alignment: %" PRId64 " is no power of two from %d", g->path,
                       align, ALIGNMENT_MIN);
    g->alignment = (uint32_t)align;
    return 0;
}

/* ---- tensors ---- */

static int read_dims(struct cursor *c, struct gguf_tensor *t)
{
    const struct gguf *g = c->g;
    uint32_t n_dim;
    uint64_t d, count = 1;

    if (!take_u32(c, &n_dim))
        return bad_tensor(g, t->name, "the file ends before its dimensions");
    if (n_dim < 1 || n_dim > 4)
        return bad_tensor(g, t->name, "has not 1 to 4 dimensions");
    t->n_dim = (int)n_dim;
    for (int i = 0; i < 4; i++) {
        d = 1;
        if (i < t->n_dim && !take_u64(c, &d))
            return bad_tensor(g, t->name, "the file ends inside of its dimensions");
        if (!d)
            return bad_tensor(g, t->name, "a dimension is 0");
        /* No type takes less than one bit for an element. */
        if (d > g->size * 8 / count)
            return bad_tensor(g, t->name, "has more elements than the file can hold");
        count *= d;
        t->dim[i] = (int64_t)d;
    }
    return 0;
}

/* *offset: the tensor's data, from the start of all data. */
static int read_tensor(struct cursor *c, uint64_t i, struct gguf_tensor *t, uint64_t *offset)
{
    const struct gguf *g = c->g;
    char buf[SHOWN];
    uint32_t id;
    int type;

    if (!take_str(c, &t->name))
        return cb_fail(CB_EFORMAT, "%s: the file ends at tensor %" PRIu64 " of %" PRIu64, g->path,
                       i, g->n_tensor);
    if (!t->name.n || t->name.n > MAX_NAME)
        return cb_fail(CB_EFORMAT, "%s: tensor %" PRIu64 " has a name of %zu bytes", g->path, i,
                       t->name.n);
    TRY(read_dims(c, t));
    if (!take_u32(c, &id) || !take_u64(c, offset))
        return bad_tensor(g, t->name, "the file ends before its type and offset");
    type = cb_dtype_from_ggml(id);
    if (type < 0)
        return cb_fail(CB_EUNSUPPORTED, "%s: tensor %s: type %s (%" PRIu32 ") is not supported",
                       g->path, show(t->name, buf), cb_ggml_type_name(id), id);
    t->type = (enum dtype)type;
    if (t->dim[0] % cb_dtype[type].block)
        return cb_fail(CB_EFORMAT,
                       "%s: tensor %s: rows of %" PRId64 " are no whole %s blocks of %d", g->path,
                       show(t->name, buf), t->dim[0], cb_dtype[type].name, cb_dtype[type].block);
    t->size = cb_row_bytes(t->type, t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]);
    return 0;
}

/* The data of tensor t lies at `offset` from `base`, the end of the header. */
static int place_tensor(const struct gguf *g, uint64_t base, uint64_t offset, struct gguf_tensor *t)
{
    if (offset % g->alignment)
        return bad_tensor(g, t->name, "its data is not aligned");
    if (base > g->size || offset > g->size - base || t->size > g->size - base - offset)
        return bad_tensor(g, t->name, "its data goes beyond the end of the file");
    t->data = g->map + base + offset;
    return 0;
}

static int cmp_data(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;

    return ((const char *)x->data > (const char *)y->data) -
           ((const char *)x->data < (const char *)y->data);
}

static int check_overlap(const struct gguf *g)
{
    const struct gguf_tensor **t = cb_calloc(g->n_tensor ? g->n_tensor : 1, sizeof *t);
    int err = 0;

    if (!t)
        return CB_ENOMEM;
    for (uint64_t i = 0; i < g->n_tensor; i++)
        t[i] = &g->tensor[i];
    qsort(t, g->n_tensor, sizeof *t, cmp_data);
    for (uint64_t i = 1; i < g->n_tensor && !err; i++)
        if ((const char *)t[i - 1]->data + t[i - 1]->size > (const char *)t[i]->data)
            err = bad_tensor(g, t[i]->name, "its data overlaps another tensor's");
    free(t);
    return err;
}

/* *offsets: [n_tensor], the caller frees, also after a failure. */
static int read_infos(struct gguf *g, struct cursor *c, uint64_t **offsets)
{
    for (uint64_t i = 0; i < g->n_tensor; i++) {
        TRY(cb_grow_by_one(&g->tensor, i, sizeof *g->tensor));
        TRY(cb_grow_by_one(offsets, i, sizeof **offsets));
        g->tensor[i] = (struct gguf_tensor){ .data = NULL };
        TRY(read_tensor(c, i, &g->tensor[i], &(*offsets)[i]));
    }
    return CB_OK;
}

int cb_gguf_index_tensors(struct gguf *g)
{
    const struct gguf_str *dup;

    free(g->by_name);
    g->by_name = NULL;
    TRY(sort_names(g->tensor, g->n_tensor, sizeof *g->tensor, &g->by_name, &dup));
    return dup ? bad_tensor(g, *dup, "occurs twice") : CB_OK;
}

static int read_tensors(struct gguf *g, struct cursor *c)
{
    uint64_t *offsets = NULL, base;
    int err = read_infos(g, c, &offsets);

    base = (c->at + (uint64_t)g->alignment - 1) / g->alignment * g->alignment;
    for (uint64_t i = 0; i < g->n_tensor && !err; i++)
        err = place_tensor(g, base, offsets[i], &g->tensor[i]);
    free(offsets);
    TRY(err);
    TRY(cb_gguf_index_tensors(g));
    return check_overlap(g);
}

/* ---- the file ---- */

int cb_gguf_parse(struct gguf *g)
{
    struct cursor c = { g, 0 };
    const unsigned char *magic = take_bytes(&c, 4);
    uint64_t n_kv;

    if (!magic || memcmp(magic, "GGUF", 4))
        return cb_fail(CB_EFORMAT, "%s: is not a GGUF file", g->path);
    if (!take_u32(&c, &g->version))
        return cb_fail(CB_EFORMAT, "%s: the file ends inside of its header", g->path);
    if (g->version && !(g->version & 0xffff))
        return cb_fail(CB_EUNSUPPORTED, "%s: big-endian files are not supported", g->path);
    if (g->version != 2 && g->version != 3)
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: GGUF version %" PRIu32 " is not supported, 2 and 3 are", g->path,
                       g->version);
    if (!take_u64(&c, &g->n_tensor) || !take_u64(&c, &n_kv))
        return cb_fail(CB_EFORMAT, "%s: the file ends inside of its header", g->path);
    TRY(read_metadata(g, &c, n_kv));
    return read_tensors(g, &c);
}
