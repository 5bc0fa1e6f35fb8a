/* SPDX-License-Identifier: MIT */
/* gguf_make.c - whole GGUF files built in memory, for tests. */
#include "gguf_make.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/splitmix.h"
#include "blocks.h"

static void need(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

void cb_make_init(struct gguf_make *m)
{
    cb_gguf_writer_init(&m->w);
    m->data = (struct gguf_bytes){ .p = NULL };
}

void cb_make_free(struct gguf_make *m)
{
    cb_gguf_writer_free(&m->w);
    free(m->data.p);
    m->data.p = NULL;
}

/* Types that are not written: random blocks whose numbers have the size of x[n]. */
static void random_blocks(enum dtype type, const float *x, int64_t n, uint8_t *to)
{
    const size_t bytes = cb_row_bytes(type, n);
    uint64_t rng = (uint64_t)n;
    float square = 0, d;

    for (int64_t i = 0; i < n; i++)
        square += x[i] * x[i];
    d = sqrtf(square / (float)n) * cb_block_unit(type);
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(cb_rand_u64(&rng) >> 32);
    for (uint8_t *b = to; b < to + bytes; b += cb_dtype[type].block_bytes)
        cb_block_steps(type, b, d, 1.5f * d);
}

void cb_make_tensor(struct gguf_make *m, const char *name, enum dtype type, int n_dim,
                    const int64_t *dim, const float *x)
{
    const size_t at = m->data.n;
    int64_t n = 1;
    size_t size;

    for (int i = 0; i < n_dim; i++)
        n *= dim[i];
    size = cb_row_bytes(type, n);
    cb_gguf_put_tensor(&m->w, (struct gguf_str){ name, strlen(name) }, type, n_dim, dim);
    need(!cb_gguf_append(&m->data, NULL, size + cb_gguf_pad(&m->w, size)), "memory");
    if (cb_dtype[type].from_f32)
        cb_dtype[type].from_f32(x, m->data.p + at, n);
    else
        random_blocks(type, x, n, m->data.p + at);
}

void cb_make_strings(struct gguf_make *m, const char *key, const char *const *s, int n)
{
    struct gguf_str *v = calloc((size_t)n, sizeof *v);

    need(v != NULL, "memory");
    for (int i = 0; i < n; i++)
        v[i] = (struct gguf_str){ s[i], strlen(s[i]) };
    cb_gguf_put_strings(&m->w, key, v, (uint64_t)n);
    free(v);
}

struct gguf_bytes cb_make_bytes(struct gguf_make *m)
{
    struct gguf_bytes all;

    need(!cb_gguf_put_header(&m->w, &all), "memory");
    need(!cb_gguf_append(&all, m->data.p, m->data.n), "memory");
    return all;
}

void cb_make_save(struct gguf_make *m, const char *path)
{
    struct gguf_bytes all = cb_make_bytes(m);

    cb_write_file(path, all.p, all.n);
    free(all.p);
    cb_make_free(m);
}

struct gguf *cb_make_open(struct gguf_make *m)
{
    char path[] = "/tmp/ctxbank-made-XXXXXX";
    const int fd = mkstemp(path);
    struct gguf *g = NULL;

    need(fd >= 0, path);
    close(fd);
    cb_make_save(m, path);
    if (cb_gguf_open(path, &g) < 0)
        g = NULL;
    unlink(path);
    return g;
}

void cb_write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");

    need(f != NULL, path);
    need((!n || fwrite(p, 1, n, f) == n) && !fclose(f), path);
}

uint64_t cb_rand_u64(uint64_t *state)
{
    return cb_splitmix(state);
}

float cb_rand_normal(uint64_t *state)
{
    float sum = -3.5f; /* of seven, each uniform in 0..1 */

    for (int i = 0; i < 7; i++)
        sum += (float)(cb_rand_u64(state) >> 40) * 0x1p-24f;
    return sum * 1.3093073f; /* sqrt(12 / 7) */
}
