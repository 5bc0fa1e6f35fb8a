/* SPDX-License-Identifier: MIT */
/* imatrix.c - reads importance matrices. Sums stay undivided by the number of tokens, since only
 * the proportions within a matrix count. */
#include "imatrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"

struct entry {
    struct gguf_str name; /* in the file's bytes */
    float *column;        /* [n] */
    int64_t n;
};

struct imatrix {
    struct entry *entry;
    int64_t n_entry;
    struct gguf *g;  /* one of the two */
    struct buf file; /* of the older form */
    char *path;
};

/* Columns that nothing is known of matter alike; a column is a sum of squares. */
static int add_sums(struct imatrix *m, struct gguf_str name, const char *sums, int64_t n, int known)
{
    struct entry *e = &m->entry[m->n_entry++];

    *e = (struct entry){ .name = name, .n = n, .column = cb_calloc((size_t)n, sizeof *e->column) };
    if (!e->column)
        return CB_ENOMEM;
    memcpy(e->column, sums, (size_t)n * sizeof *e->column);
    for (int64_t i = 0; i < n; i++) {
        if (!(e->column[i] >= 0 && e->column[i] < INFINITY))
            return cb_fail(CB_EFORMAT, "%s: %.*s: a sum of squares is negative or not finite",
                           m->path, (int)(name.n < 80 ? name.n : 80), name.s);
        if (!known)
            e->column[i] = 1;
    }
    return CB_OK;
}

static int make_room(struct imatrix *m, uint64_t n)
{
    m->entry = cb_calloc((size_t)n, sizeof *m->entry);
    return m->entry ? CB_OK : CB_ENOMEM;
}

/* ---- GGUF: tensors NAME.in_sum2 [n_mat][n_in] and NAME.counts [n_mat] ---- */

static const char sum_end[] = ".in_sum2", count_end[] = ".counts";

/* The tensor of the counts of one that ends in sum_end, or NULL */
static const struct gguf_tensor *counts_of(const struct gguf *g, struct gguf_str name)
{
    char text[256];

    if (name.n + sizeof count_end > sizeof text)
        return NULL;
    memcpy(text, name.s, name.n);
    memcpy(text + name.n, count_end, sizeof count_end);
    return cb_gguf_tensor(g, text);
}

static int64_t n_of(const struct gguf_tensor *t)
{
    return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}

/* Experts that no token chose have a count of 0. */
static int take_tensor(struct imatrix *m, const struct gguf_tensor *t)
{
    const struct gguf_str name = { t->name.s, t->name.n - (sizeof sum_end - 1) };
    const struct gguf_tensor *c = counts_of(m->g, name);
    const int64_t n_mat = c ? n_of(c) : 0, n = n_of(t);
    struct entry *e = &m->entry[m->n_entry];

    if (!c || t->type != DT_F32 || c->type != DT_F32 || n_mat < 1 || n % n_mat)
        return cb_fail(CB_EFORMAT, "%s: %.*s has no counts that fit", m->path,
                       (int)(name.n < 80 ? name.n : 80), name.s);
    TRY(add_sums(m, name, t->data, n, 1));
    for (int64_t i = 0; i < n_mat; i++) {
        float count;
        memcpy(&count, (const char *)c->data + (size_t)i * sizeof count, sizeof count);
        for (int64_t k = 0; !(count > 0) && k < n / n_mat; k++)
            e->column[i * (n / n_mat) + k] = 1;
    }
    return CB_OK;
}

static int read_gguf(struct imatrix *m)
{
    const size_t end = sizeof sum_end - 1;
    const struct gguf_tensor *t;

    TRY(cb_gguf_open(m->path, &m->g));
    TRY(make_room(m, cb_gguf_n_tensor(m->g) + 1));
    for (uint64_t i = 0; (t = cb_gguf_tensor_at(m->g, i)); i++)
        if (t->name.n > end && !memcmp(t->name.s + t->name.n - end, sum_end, end))
            TRY(take_tensor(m, t));
    return CB_OK;
}

/* ---- the older form: i32 entries; each i32 length, name, i32 calls, i32 n, f32 [n] ---- */

struct reader {
    const char *at;
    size_t left;
};

/* n bytes, or NULL at the end of the file */
static const char *bytes(struct reader *r, int64_t n)
{
    const char *p = r->at;

    if (n < 0 || (uint64_t)n > r->left)
        return NULL;
    r->at += n;
    r->left -= (size_t)n;
    return p;
}

/* A number of at least 1, or -1 */
static int64_t number(struct reader *r)
{
    const char *p = bytes(r, 4);
    int32_t v = -1;

    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

static int take_entry(struct imatrix *m, struct reader *r)
{
    const int64_t len = number(r);
    const char *name = bytes(r, len);
    const int64_t calls = number(r), n = number(r);
    const char *sums = bytes(r, n > 0 ? n * (int64_t)sizeof(float) : -1);

    if (!name || !sums)
        return cb_fail(CB_EFORMAT, "%s: ends within entry %lld, or is no importance matrix",
                       m->path, (long long)m->n_entry + 1);
    return add_sums(m, (struct gguf_str){ name, (size_t)len }, sums, n, calls > 0);
}

static int read_old(struct imatrix *m)
{
    struct reader r = { m->file.s, m->file.n };
    const int64_t n = number(&r);

    if (n < 1 || (uint64_t)n > m->file.n / 16) /* the least of an entry */
        return cb_fail(CB_EFORMAT, "%s: is no importance matrix", m->path);
    TRY(make_room(m, (uint64_t)n));
    for (int64_t i = 0; i < n; i++)
        TRY(take_entry(m, &r));
    return CB_OK;
}

/* ---- both ---- */

static int read_file(struct imatrix *m)
{
    TRY(cb_file_read_path(m->path, &m->file));
    if (m->file.n < 4 || memcmp(m->file.s, "GGUF", 4))
        return read_old(m);
    cb_buf_free(&m->file);
    return read_gguf(m);
}

int cb_imatrix_open(const char *path, struct imatrix **out)
{
    struct imatrix *m = cb_calloc(1, sizeof *m);
    int err = m && (m->path = strdup(path)) ? read_file(m) : CB_ENOMEM;

    if (!err && !m->n_entry)
        err = cb_fail(CB_EFORMAT, "%s: is no importance matrix", path);
    if (err) {
        cb_imatrix_close(m);
        m = NULL;
    }
    *out = m;
    return err;
}

void cb_imatrix_close(struct imatrix *m)
{
    if (!m)
        return;
    for (int64_t i = 0; i < m->n_entry; i++)
        free(m->entry[i].column);
    free(m->entry);
    cb_gguf_close(m->g);
    cb_buf_free(&m->file);
    free(m->path);
    free(m);
}

int cb_imatrix_find(const struct imatrix *m, struct gguf_str name, int64_t n_in, int64_t n_mat,
                    const float **column, int64_t *n)
{
    for (int64_t i = 0; i < m->n_entry; i++) {
        const struct entry *e = &m->entry[i];
        if (e->name.n != name.n || memcmp(e->name.s, name.s, name.n))
            continue;
        if (e->n != n_in && e->n != n_in * n_mat)
            return cb_fail(CB_EFORMAT, "%s: %.*s has %lld columns, the model %lld", m->path,
                           (int)(name.n < 80 ? name.n : 80), name.s, (long long)e->n,
                           (long long)(n_in * n_mat));
        *column = e->column;
        *n = e->n == n_in ? 1 : n_mat;
        return 1;
    }
    return 0;
}

int cb_imatrix_fits(const struct imatrix *m, const struct gguf *g)
{
    const struct gguf_tensor *t;
    const float *column;
    int64_t n;
    int found, all = 0;

    for (uint64_t i = 0; (t = cb_gguf_tensor_at(g, i)); i++) {
        TRY(found = cb_imatrix_find(m, t->name, t->dim[0], t->dim[2] * t->dim[3], &column, &n));
        all += found;
    }
    return all ? CB_OK : cb_fail(CB_EFORMAT, "%s: has no matrix of this model", m->path);
}
