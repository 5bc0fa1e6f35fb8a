/* SPDX-License-Identifier: MIT */
/* gguf_file.h - an open GGUF file inside of its reader: gguf_open.c maps it, gguf_parse.c
 * fills it, gguf_find.c searches it. */
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
    /* Sorted by name: a search is a few comparisons, and no file can make it slow, as colliding
     * names would make a hash table. */
    const struct gguf_str **by_key, **by_name;
};

/* Fills all but path, map and size; on failure what is there is for cb_gguf_close to free. */
int cb_gguf_parse(struct gguf *g);

/* Orders entries of by_key and by_name. */
int cb_gguf_cmp_name(const void *a, const void *b);

#endif
