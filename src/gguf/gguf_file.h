/* SPDX-License-Identifier: MIT */
/* gguf_file.h - the reader's own view of an open GGUF file: gguf_open.c maps it, gguf_parse.c fills
 * the struct, gguf_find.c searches it. */
#ifndef GGUF_FILE_H
#define GGUF_FILE_H

#include "gguf.h"

struct gguf {
    char *path;
    const unsigned char *map;
    size_t size; /* bytes of the file */
    uint32_t version;
    uint32_t alignment; /* of each tensor's data, bytes */
    uint64_t n_kv, n_tensor;
    struct gguf_kv *kv;
    struct gguf_tensor *tensor;
    /* Sorted by name for binary search. No file can make it slow, whereas colliding names would
     * slow a hash table. */
    const struct gguf_str **by_key, **by_name;
    /* The other files of a model that is split; `tensor` has the tensors of all. */
    struct gguf **part; /* [n_part] */
    int n_part;
};

/* Fills all but path, map and size; cb_gguf_close() frees it, after a failure as well. */
int cb_gguf_parse(struct gguf *g);

/* Sorts the tensors' names -> by_name; fails if one occurs twice. */
int cb_gguf_index_tensors(struct gguf *g);

/* Orders entries of by_key and by_name. */
int cb_gguf_cmp_name(const void *a, const void *b);

#endif
