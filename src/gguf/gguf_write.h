/* SPDX-License-Identifier: MIT */
/* gguf_write.h - builds the header of a GGUF file; the caller writes the tensors' data after it. */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include "gguf.h"

struct gguf_bytes {
    unsigned char *p;
    size_t n, cap;
};

/* Begin with cb_gguf_writer_init(). A put that runs out of memory is remembered and reported by
 * cb_gguf_put_header(), so puts need no checks. Nothing checks that keys and names are unique. */
struct gguf_writer {
    uint32_t version, alignment;
    uint64_t n_kv, n_tensor;
    uint64_t data_bytes; /* data of the tensors so far, each padded */
    struct gguf_bytes kv, info;
    int err;
};

void cb_gguf_writer_init(struct gguf_writer *w); /* version 3, alignment 32 */
void cb_gguf_writer_free(struct gguf_writer *w);

/* With an alignment other than 32, also put the key general.alignment. */
void cb_gguf_put_i64(struct gguf_writer *w, const char *key, enum gguf_type type, int64_t v);
void cb_gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void cb_gguf_put_bool(struct gguf_writer *w, const char *key, int v);
void cb_gguf_put_string(struct gguf_writer *w, const char *key, const char *s);
/* n elements of a fixed size, as they lie in memory */
void cb_gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem,
                       const void *data, uint64_t n);
void cb_gguf_put_strings(struct gguf_writer *w, const char *key, const struct gguf_str *s,
                         uint64_t n);
void cb_gguf_put_copy(struct gguf_writer *w, const struct gguf_kv *kv); /* from another file */

/* The tensor's data follows the data of the one before it, padded by cb_gguf_pad(). */
void cb_gguf_put_tensor(struct gguf_writer *w, struct gguf_str name, enum dtype type, int n_dim,
                        const int64_t *dim);

/* The header up to the first tensor's data; *out is allocated, free out->p. */
int cb_gguf_put_header(struct gguf_writer *w, struct gguf_bytes *out);

/* Zero bytes that pad n bytes of a tensor's data. */
static inline size_t cb_gguf_pad(const struct gguf_writer *w, uint64_t n)
{
    return (size_t)((w->alignment - n % w->alignment) % w->alignment);
}

/* Appends to a buffer; 0 or CB_ENOMEM. p NULL: zeros. */
int cb_gguf_append(struct gguf_bytes *b, const void *p, size_t n);

#endif
