/* SPDX-License-Identifier: MIT */
/* driver.h - what OpenCL and CUDA do differently: memory, one queue, kernels. */
#ifndef CB_DRIVER_H
#define CB_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct gpu;

/* The texts in backends/gpu/kernels */
enum gpu_text {
    GPU_MATMUL,
    GPU_GEMM,
    GPU_VECTOR,
    GPU_SELECT,
    GPU_SEARCH,
    GPU_PAGES,
    GPU_INDEX,
    GPU_ATTENTION,
    GPU_PEAK,
    GPU_TEXT_COUNT
};
extern const char *const cb_gpu_text_name[GPU_TEXT_COUNT];

/* What a text is compiled for: the words TYPE, TYPE_V, HD and KIVI of the texts that have them */
struct gpu_options {
    int type;   /* enum dtype of a weight, or enum kv_type of keys */
    int type_v; /* enum kv_type of values */
    int hd;
    int kivi; /* 1: runs may have quantised slots */
};

/* An argument of a kernel: an address on the device, or a number of `bytes` bytes */
struct gpu_arg {
    size_t bytes; /* 0: an address */
    union {
        const void *p;
        int32_t i;
        int64_t l;
        float f;
    } as;
};

/* Memory of a device, in bytes */
struct gpu_size {
    uint64_t all, free; /* it has; may be used now */
    uint64_t most;      /* in one piece */
};

/* Each function that returns int returns 0 or a status of the driver's own; open() is the
 * exception. Commands take effect in the order in which they are queued. */
struct driver {
    const char *ops; /* "opencl": name of the op table */
    int has_mma;     /* 1: gemm.cl has kernels */
    int reaches_all; /* 1: kernels reach memory whose address they read, without `deep` */

    /* Sets g->own; fails with cb_error(). close() comes after a failure too. */
    int (*open)(struct gpu *g, int index, struct gpu_size *size);
    void (*close)(struct gpu *g);
    int (*is_memory)(int status); /* 1: it says that memory ran out */
    void (*explain)(const struct gpu *g, int status, char *text, size_t size);

    /* *p is 128-byte aligned. The queue is empty when memory is freed. */
    int (*alloc)(struct gpu *g, size_t bytes, void **p);
    void (*free)(struct gpu *g, void *p);
    /* Host memory that copies are fast from; NULL: no memory */
    void *(*alloc_host)(struct gpu *g, size_t bytes);
    void (*free_host)(struct gpu *g, void *p);
    /* Whole pages of the host's memory that are only read, and copied again and again: they stay in
     * memory until they are given back, and copies from there are fast. May be refused. NULL: it
     * makes no difference */
    int (*pin)(struct gpu *g, const void *p, size_t bytes);
    void (*unpin)(struct gpu *g, const void *p);
    /* The same for memory that the host may write, and that kernels may read at its address. NULL:
     * they cannot */
    int (*map)(struct gpu *g, const void *p, size_t bytes);

    /* At least one of both addresses is on the device; the host's are pinned, or none of them is.
     */
    int (*copy)(struct gpu *g, void *to, const void *from, size_t bytes);
    /* The same in a second queue, beside what the first one does */
    int (*copy_ahead)(struct gpu *g, void *to, const void *from, size_t bytes);
    int (*ahead_after)(struct gpu *g); /* copies ahead from here on follow what is queued so far */
    int (*after_ahead)(struct gpu *g); /* what is queued from here on follows the copies ahead */
    void (*flush)(struct gpu *g);      /* what is queued begins */
    int (*finish)(struct gpu *g);      /* what is queued, but for copies ahead, has ended */

    /* A compiled text, NULL with cb_error() set; one of its kernels, NULL with *status set */
    void *(*load)(struct gpu *g, enum gpu_text text, const struct gpu_options *o);
    void *(*kernel)(struct gpu *g, void *program, const char *name, int *status);
    void (*unload)(struct gpu *g, void *program, void *const *kernel, int n_kernel);
    /* groups[3] groups of `items` items. `deep`: pieces of memory that the kernel reaches through
     * other pieces, a list that ends with NULL; may be NULL. */
    int (*run)(struct gpu *g, void *kernel, const size_t groups[3], size_t items,
               const struct gpu_arg *arg, int n_arg, void *const *deep);
};

#endif
