/* SPDX-License-Identifier: MIT */
/* gguf_make.h - whole GGUF files built in memory, for tests. Out of memory ends the program. */
#ifndef GGUF_MAKE_H
#define GGUF_MAKE_H

#include "gguf/gguf_write.h"

/* Put metadata and tensors with the cb_gguf_put_* functions on w; cb_make_tensor() adds data. */
struct gguf_make {
    struct gguf_writer w;
    struct gguf_bytes data;
};

void cb_make_init(struct gguf_make *m);
void cb_make_free(struct gguf_make *m);

/* x[dim[n_dim-1]]..[dim[0]] f32, stored as `type` */
void cb_make_tensor(struct gguf_make *m, const char *name, enum dtype type, int n_dim,
                    const int64_t *dim, const float *x);
void cb_make_strings(struct gguf_make *m, const char *key, const char *const *s, int n);

struct gguf_bytes cb_make_bytes(struct gguf_make *m);     /* the file; free .p */
void cb_make_save(struct gguf_make *m, const char *path); /* writes the file, frees m */
struct gguf *
cb_make_open(struct gguf_make *m); /* the same, opened without a name; NULL = refused */

void cb_write_file(const char *path, const void *p, size_t n);

/* Reproducible random numbers (splitmix64). */
uint64_t cb_rand_u64(uint64_t *state);
float cb_rand_normal(uint64_t *state); /* mean 0, deviation 1, magnitude below 4.6: a sum of 7 */

#endif
