/* SPDX-License-Identifier: MIT */
/* slab.h - large anonymous memory, in 2 MiB pages where the kernel provides them. */
#ifndef SLAB_H
#define SLAB_H

#include <stddef.h>

struct slab;

/* 64-byte aligned and zeroed. Out of memory: NULL, with cb_error() set. *list owns the memory. */
void *cb_slab_alloc(struct slab **list, size_t bytes);
/* A slab returns to the kernel when its last piece is released. */
void cb_slab_release(struct slab **list, const void *p);
void cb_slab_free_all(struct slab **list);

#endif
