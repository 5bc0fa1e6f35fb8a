/* SPDX-License-Identifier: MIT */
/* slab.h - large anonymous memory, in 2 MiB pages where the kernel gives them. */
#ifndef SLAB_H
#define SLAB_H

#include <stddef.h>

struct slab;

/* 64-byte aligned and zeroed; NULL and cb_error() when there is none. *list owns it. */
void *cb_slab_alloc(struct slab **list, size_t bytes);
/* A slab goes back to the kernel with the last piece of it. */
void cb_slab_release(struct slab **list, const void *p);
void cb_slab_free_all(struct slab **list);

#endif
