/* SPDX-License-Identifier: MIT */
/* gguf.h - a GGUF file (v2, v3), mapped read-only and checked in full when opened: no accessor can
 * read past its end afterwards. Strings point into the mapping and do not end in NUL. */
#ifndef GGUF_H
#define GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "dtype.h"

struct gguf;

struct gguf_str {
    const char *s;
    size_t n;
};

struct gguf_tensor {
    struct gguf_str name;
    enum dtype type;
    int n_dim;
    int64_t dim[4]; /* dim[0] runs fastest; the unused ones are 1 */
    const void *data;
    size_t size; /* bytes */
};

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_kv {
    struct gguf_str key;
    enum gguf_type type; /* GGUF_ARRAY: see elem, n */
    enum gguf_type elem;
    uint64_t n;       /* array length; 1 for scalars */
    const void *data; /* unaligned, little endian; the first element */
    /* strings: [n + 1] offset of each one's length field from data, then of the end. Lengths come
     * from here: the file may change after it was checked. */
    const uint64_t *str_at;
};

/* The first file of a split model (NAME-00001-of-00003.gguf) opens the others as well. */
int cb_gguf_open(const char *path, struct gguf **out);
void cb_gguf_close(struct gguf *g);

const char *cb_gguf_path(const struct gguf *g);
uint64_t cb_gguf_file_bytes(const struct gguf *g);
const struct gguf_kv *cb_gguf_kv_at(const struct gguf *g, uint64_t i);
const struct gguf_kv *cb_gguf_find(const struct gguf *g, const char *key); /* NULL = absent */
uint64_t cb_gguf_n_tensor(const struct gguf *g);
const struct gguf_tensor *cb_gguf_tensor_at(const struct gguf *g, uint64_t i);
const struct gguf_tensor *cb_gguf_tensor(const struct gguf *g,
                                         const char *name); /* NULL = absent */

/* Typed reads. 1 = read, 0 = absent (*out is left alone), negative = wrong type or out of range:
 * the error names file and key. Integer reads take any integer type that fits. */
int cb_gguf_i64(const struct gguf *g, const char *key, int64_t *out);
int cb_gguf_f32(const struct gguf *g, const char *key, float *out);
int cb_gguf_bool(const struct gguf *g, const char *key, int *out);
int cb_gguf_string(const struct gguf *g, const char *key, struct gguf_str *out);
/* Arrays: 1 and *out set when `key` is an array of that element kind, 0 absent, negative wrong. */
int cb_gguf_array(const struct gguf *g, const char *key, enum gguf_type elem,
                  const struct gguf_kv **out);
struct gguf_str cb_gguf_array_str(const struct gguf_kv *kv, uint64_t i);
double cb_gguf_array_num(const struct gguf_kv *kv, uint64_t i);
/* Element i of an array of integers, with all its bits; as the typed reads */
int cb_gguf_i64_at(const struct gguf *g, const char *key, uint64_t i, int64_t *out);

/* Releases the mapping's pages of some bytes of a tensor; they are read again on demand. */
void cb_gguf_release_pages(const struct gguf *g, const void *data, size_t size);

#endif
