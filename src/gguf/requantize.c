/* SPDX-License-Identifier: MIT */
/* requantize.c - rewrites a GGUF file in another type. */
#include "requantize.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/ints.h"
#include "base/new_file.h"
#include "gguf_write.h"
#include "imatrix.h"
#include "par/par.h"

enum {
    CHUNK = 1 << 20, /* elements converted between two writes; at least one row */
    NAME_SHOWN = 80  /* bytes of a tensor's name in a message */
};

struct job {
    struct quantize *q;
    struct gguf *g;
    struct imatrix *imatrix; /* or NULL */
    struct gguf_writer w;
    enum dtype *type; /* [n_tensor] of the new file */
    struct par *par;
    struct new_file file;
    int n_layer;
    uint64_t done, total; /* bytes of tensors read */
};

/* ---- types ---- */

static int ends_with(struct gguf_str s, const char *end)
{
    const size_t n = strlen(end);

    return s.n >= n && !memcmp(s.s + s.n - n, end, n);
}

/* Length of a name in a message */
static int shown(struct gguf_str s)
{
    return (int)(s.n < NAME_SHOWN ? s.n : NAME_SHOWN);
}

static int is_name(struct gguf_str s, const char *name)
{
    return s.n == strlen(name) && ends_with(s, name);
}

static int is_quantised(enum dtype t)
{
    return cb_dtype[t].block > 1;
}

/* The next wider type, for rows that are not whole blocks of t. */
static enum dtype wider(enum dtype t)
{
    switch (t) {
    case DT_Q4_K:
        return DT_Q5_0;
    case DT_Q5_K:
        return DT_Q5_1;
    case DT_Q6_K:
        return DT_Q8_0;
    default:
        return DT_F16;
    }
}

static enum dtype fall_back(struct quantize *q, const struct gguf_tensor *t, enum dtype type)
{
    char name[NAME_SHOWN + 1];

    while (t->dim[0] % cb_dtype[type].block)
        type = wider(type);
    snprintf(name, sizeof name, "%.*s", shown(t->name), t->name.s);
    if (q->fallback)
        q->fallback(q->fallback_arg, name, t->dim[0], type);
    q->n_fallback++;
    return type;
}

/* N of blk.N.SOMETHING, else -1 */
static int layer_of(const struct gguf_tensor *t)
{
    char name[NAME_SHOWN + 1];
    int l;

    snprintf(name, sizeof name, "%.*s", shown(t->name), t->name.s);
    return sscanf(name, "blk.%6d.", &l) == 1 ? l : -1;
}

static int count_layers(struct gguf *g)
{
    const struct gguf_tensor *t;
    int n = 0;

    for (uint64_t i = 0; (t = cb_gguf_tensor_at(g, i)); i++)
        n = max_int(n, layer_of(t) + 1);
    return n;
}

/* Errors in the values of the first layers, and in what their feed-forward blocks add, reach all
 * later layers. */
static int is_sensitive(const struct job *j, const struct gguf_tensor *t)
{
    const int l = layer_of(t);

    return l >= 0 && ((l < 4 && ends_with(t->name, ".attn_v.weight")) ||
                      (l < j->n_layer / 8 && (ends_with(t->name, ".ffn_down.weight") ||
                                              ends_with(t->name, ".ffn_down_exps.weight"))));
}

static enum dtype choose(struct job *j, const struct gguf_tensor *t)
{
    const int tied = !cb_gguf_tensor(j->g, "output.weight");
    enum dtype type = j->q->type;

    if (t->type == DT_I32)
        return DT_I32;
    /* small, and what they compute decides for whole heads, experts or streams */
    if (t->n_dim < 2 || !ends_with(t->name, ".weight") || ends_with(t->name, "norm.weight") ||
        ends_with(t->name, "ffn_gate_inp.weight") || ends_with(t->name, "_fn.weight") ||
        ends_with(t->name, "_ape.weight"))
        return DT_F32;
    if (is_quantised(type) && type != DT_Q8_0 &&
        is_name(t->name, tied ? "token_embd.weight" : "output.weight"))
        type = DT_Q6_K;
    if (type == DT_Q4_K && is_sensitive(j, t))
        type = DT_Q5_K;
    if (t->dim[0] % cb_dtype[type].block)
        type = fall_back(j->q, t, type);
    j->q->n_requant += is_quantised(t->type) && is_quantised(type) && t->type != type;
    return type;
}

/* ---- header ---- */

/* general.file_type: the type that most matrices have, as numbered by GGUF's makers. */
static int file_type(enum dtype t)
{
    static const unsigned char id[DT_COUNT] = {
        [DT_F32] = 0,  [DT_F16] = 1,  [DT_BF16] = 32, [DT_Q4_0] = 2,  [DT_Q4_1] = 3,  [DT_Q5_0] = 8,
        [DT_Q5_1] = 9, [DT_Q8_0] = 7, [DT_Q4_K] = 14, [DT_Q5_K] = 16, [DT_Q6_K] = 18,
    };
    return id[t];
}

static int plan_types(struct job *j)
{
    struct gguf_writer *w = &j->w;
    const struct gguf_tensor *t;
    const struct gguf_kv *kv;
    int64_t align = 32;

    j->type = cb_calloc((size_t)cb_gguf_n_tensor(j->g), sizeof *j->type);
    if (!j->type)
        return CB_ENOMEM;
    TRY(cb_gguf_i64(j->g, "general.alignment", &align));
    w->alignment = (uint32_t)align;
    j->n_layer = count_layers(j->g);
    for (uint64_t i = 0; (kv = cb_gguf_kv_at(j->g, i)); i++)
        if (!is_name(kv->key, "general.file_type") &&
            !is_name(kv->key, "general.quantization_version") &&
            (kv->key.n < 6 || memcmp(kv->key.s, "split.", 6))) /* the result is one file */
            cb_gguf_put_copy(w, kv);
    cb_gguf_put_i64(w, "general.file_type", GGUF_U32, file_type(j->q->type));
    if (is_quantised(j->q->type))
        cb_gguf_put_i64(w, "general.quantization_version", GGUF_U32, 2);
    for (uint64_t i = 0; (t = cb_gguf_tensor_at(j->g, i)); i++) {
        j->type[i] = choose(j, t);
        cb_gguf_put_tensor(w, t->name, j->type[i], t->n_dim, t->dim);
        j->total += t->size;
    }
    j->q->n_tensor = (int)w->n_tensor;
    return CB_OK;
}

/* ---- writing ---- */

static int write_all(struct job *j, const void *p, size_t n)
{
    j->q->out_bytes += n;
    return cb_new_file_write(&j->file, p, n);
}

static int write_header(struct job *j)
{
    struct gguf_bytes b;
    int err;

    TRY(cb_gguf_put_header(&j->w, &b));
    err = write_all(j, b.p, b.n);
    free(b.p);
    return err;
}

/* ---- tensors ---- */

/* Rows of one tensor, converted by several threads. */
struct rows {
    const struct par *par;
    enum dtype from, to;
    int64_t n;                     /* elements in a row */
    const float *column;           /* [n_mat][n], how columns matter, or NULL */
    int64_t n_mat, mat_rows, row0; /* rows of a matrix; the first row of src */
    const unsigned char *src;
    unsigned char *dst;
    float limit;        /* from this magnitude on, a weight or the step of its block is infinite */
    atomic_int strange; /* 1: a weight is infinite or NaN; 2: one is too large for the type */
};

enum { NOT_FINITE = 1, TOO_LARGE = 2 };

/* Steps and minima of blocks are f16; a step is an eighth of the largest magnitude at most. */
static float limit_of(enum dtype t)
{
    if (t == DT_F16 || t == DT_Q4_1 || t == DT_Q5_1)
        return 65520;
    return is_quantised(t) ? 8 * 65520.f : INFINITY;
}

static void encode_row(const struct rows *r, int64_t row, const float *x, void *to)
{
    const int64_t mat = r->n_mat > 1 ? row / r->mat_rows : 0;

    if (r->column)
        cb_dtype_weighted(r->to)(x, r->column + mat * r->n, to, r->n);
    else
        cb_dtype[r->to].from_f32(x, to, r->n);
}

static void convert_row(void *ctx, int i, int thread)
{
    struct rows *r = ctx;
    float *x = cb_par_scratch(r->par, thread);
    int large = 0, lost = 0;

    cb_dtype[r->from].to_f32(r->src + (size_t)i * cb_row_bytes(r->from, r->n), x, r->n);
    for (int64_t k = 0; k < r->n; k++) {
        large |= !(fabsf(x[k]) < r->limit);
        lost |= !(fabsf(x[k]) < INFINITY);
    }
    if (large || lost)
        atomic_store(&r->strange, lost ? NOT_FINITE : TOO_LARGE);
    else
        encode_row(r, r->row0 + i, x, r->dst + (size_t)i * cb_row_bytes(r->to, r->n));
}

static int step(struct job *j, uint64_t bytes)
{
    j->done += bytes;
    if (j->q->progress && j->q->progress(j->q->progress_arg, (int64_t)j->done, (int64_t)j->total))
        return cb_fail(CB_ECANCEL, "%s: stopped", j->q->out);
    return CB_OK;
}

/* Same type: copies the bytes. */
static int copy(struct job *j, const struct gguf_tensor *t)
{
    for (size_t at = 0; at < t->size; at += CHUNK) {
        const size_t n = t->size - at < CHUNK ? t->size - at : CHUNK;
        TRY(write_all(j, (const unsigned char *)t->data + at, n));
        TRY(step(j, n));
    }
    return CB_OK;
}

static int refuse(const char *path, const struct gguf_tensor *t, enum dtype to, int strange)
{
    if (strange == NOT_FINITE)
        return cb_fail(CB_EFORMAT, "%s: tensor %.*s: a weight is infinite or not a number", path,
                       shown(t->name), t->name.s);
    if (strange == TOO_LARGE)
        return cb_fail(CB_EFORMAT, "%s: tensor %.*s: a weight is too large for %s", path,
                       shown(t->name), t->name.s, cb_dtype[to].name);
    return CB_OK;
}

/* How the columns of t matter, where the type and the importance matrix say that */
static int find_columns(struct job *j, const struct gguf_tensor *t, struct rows *r)
{
    int found;

    if (!j->imatrix || !cb_dtype_weighted(r->to))
        return CB_OK;
    r->mat_rows = t->dim[1];
    found =
        cb_imatrix_find(j->imatrix, t->name, r->n, t->dim[2] * t->dim[3], &r->column, &r->n_mat);
    j->q->n_weighted += found > 0;
    if (found > 0) /* steps that are fitted to some columns can be larger for others */
        r->limit = 4 * 65520.f;
    return found < 0 ? found : CB_OK;
}

static int convert(struct job *j, const struct gguf_tensor *t, enum dtype to)
{
    struct rows r = {
        .par = j->par, .from = t->type, .to = to, .n = t->dim[0], .limit = limit_of(to)
    };
    const int64_t n_row = t->dim[1] * t->dim[2] * t->dim[3];
    const int64_t step_rows = r.n < CHUNK ? CHUNK / r.n : 1;
    const size_t in = cb_row_bytes(t->type, r.n), out = cb_row_bytes(to, r.n);
    int err = find_columns(j, t, &r);

    if (!err)
        err = cb_par_reserve(j->par, (size_t)r.n * sizeof(float));
    if (!err && !(r.dst = cb_alloc_aligned((size_t)step_rows, out)))
        err = CB_ENOMEM;
    for (int64_t row = 0; row < n_row && !err; row += step_rows) {
        const int n = (int)(n_row - row < step_rows ? n_row - row : step_rows);
        r.src = (const unsigned char *)t->data + (size_t)row * in;
        r.row0 = row;
        cb_par_for(j->par, n, convert_row, &r);
        err = refuse(j->q->in, t, to, atomic_load(&r.strange));
        if (!err)
            err = write_all(j, r.dst, (size_t)n * out);
        if (!err)
            err = step(j, (size_t)n * in);
    }
    free(r.dst);
    return err;
}

static int write_tensors(struct job *j)
{
    const struct gguf_tensor *t;
    static const unsigned char zeros[4096];

    for (uint64_t i = 0; (t = cb_gguf_tensor_at(j->g, i)); i++) {
        const uint64_t size = j->q->out_bytes;
        size_t pad;

        TRY(t->type == j->type[i] ? copy(j, t) : convert(j, t, j->type[i]));
        cb_gguf_release_pages(j->g, t->data, t->size);
        for (pad = cb_gguf_pad(&j->w, j->q->out_bytes - size); pad > sizeof zeros;
             pad -= sizeof zeros)
            TRY(write_all(j, zeros, sizeof zeros));
        TRY(write_all(j, zeros, pad));
    }
    return CB_OK;
}

/* ---- the file ---- */

static int check_target(const struct quantize *q)
{
    struct stat in, out;

    if (!stat(q->out, &out) && !stat(q->in, &in) && in.st_dev == out.st_dev &&
        in.st_ino == out.st_ino)
        return cb_fail(CB_EARG, "%s: input and output are the same file", q->out);
    return CB_OK;
}

static int steps(struct job *j)
{
    if (j->q->type >= DT_ENCODED)
        return cb_fail(CB_EUNSUPPORTED, "%s: cannot be written", cb_dtype[j->q->type].name);
    TRY(check_target(j->q));
    TRY(cb_gguf_open(j->q->in, &j->g));
    j->q->in_bytes = cb_gguf_file_bytes(j->g);
    if (j->q->imatrix) {
        TRY(cb_imatrix_open(j->q->imatrix, &j->imatrix));
        TRY(cb_imatrix_fits(j->imatrix, j->g));
    }
    TRY(plan_types(j));
    TRY(cb_par_new(j->q->n_threads, &j->par));
    TRY(cb_new_file_open(&j->file, j->q->out));
    TRY(write_header(j));
    TRY(write_tensors(j));
    return cb_new_file_keep(&j->file);
}

int cb_quantize(struct quantize *q)
{
    struct job j = { .q = q, .file = { .fd = -1 } };
    int err;

    q->out_bytes = 0;
    q->n_fallback = q->n_requant = q->n_weighted = 0;
    cb_gguf_writer_init(&j.w);
    err = steps(&j);
    cb_new_file_close(&j.file);
    cb_par_free(j.par);
    cb_gguf_writer_free(&j.w);
    cb_gguf_close(j.g);
    cb_imatrix_close(j.imatrix);
    free(j.type);
    return err;
}
