/* SPDX-License-Identifier: MIT */
/* gpu_program.c - the kernels that an accelerator has loaded, and how they are run. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gpu.h"

enum { MOST_KERNEL = 20, EACH_ITEMS = 64 };

const char *const cb_gpu_text_name[GPU_TEXT_COUNT] = {
    [GPU_MATMUL] = "matmul", [GPU_GEMM] = "gemm",     [GPU_VECTOR] = "vector",
    [GPU_SELECT] = "select", [GPU_SEARCH] = "search", [GPU_ATTENTION] = "attention",
    [GPU_PAGES] = "pages",   [GPU_INDEX] = "index",   [GPU_PEAK] = "peak",
};

struct gpu_program {
    struct gpu_program *next;
    enum gpu_text text;
    struct gpu_options options;
    void *own; /* the driver's */
    int n;
    char name[MOST_KERNEL][24];
    void *kernel[MOST_KERNEL];
};

static int is_program(const struct gpu_program *p, enum gpu_text text, const struct gpu_options *o)
{
    const struct gpu_options *q = &p->options;

    return p->text == text && q->type == o->type && q->type_v == o->type_v && q->hd == o->hd &&
           q->kivi == o->kivi;
}

struct gpu_program *cb_gpu_program(struct gpu *g, enum gpu_text text, struct gpu_options o)
{
    struct gpu_program *p;

    for (p = g->programs; p; p = p->next)
        if (is_program(p, text, &o))
            return p;
    p = cb_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->text = text;
    p->options = o;
    p->own = g->driver->load(g, text, &o);
    if (!p->own) {
        free(p);
        return NULL;
    }
    p->next = g->programs;
    g->programs = p;
    return p;
}

void cb_gpu_free_programs(struct gpu *g)
{
    for (struct gpu_program *p = g->programs, *next; p; p = next) {
        next = p->next;
        g->driver->unload(g, p->own, p->kernel, p->n);
        free(p);
    }
    g->programs = NULL;
}

static void *kernel_of(struct gpu *g, struct gpu_program *p, const char *name)
{
    int status = 0;
    void *kernel;

    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->name[i], name))
            return p->kernel[i];
    assert(p->n < MOST_KERNEL);
    kernel = g->driver->kernel(g, p->own, name, &status);
    if (!kernel) {
        cb_gpu_fail(g, name, status);
        return NULL;
    }
    snprintf(p->name[p->n], sizeof p->name[0], "%s", name);
    p->kernel[p->n] = kernel;
    return p->kernel[p->n++];
}

void cb_gpu_run(struct gpu *g, struct gpu_program *p, const char *kernel, const size_t groups[3],
                size_t items, const struct gpu_arg *arg, int n_arg, void *const *deep)
{
    void *k;
    int err;

    if (g->new_rows.n)
        g->store_new_rows(g);
    k = g->status ? NULL : kernel_of(g, p, kernel);
    if (!k || !groups[0] || !groups[1] || !groups[2])
        return;
    err = g->driver->run(g, k, groups, items, arg, n_arg, deep);
    if (err)
        cb_gpu_fail(g, kernel, err);
}

void cb_gpu_run_each(struct gpu *g, struct gpu_program *p, const char *kernel, int64_t n,
                     const struct gpu_arg *arg, int n_arg)
{
    const size_t groups[3] = { (size_t)((n + EACH_ITEMS - 1) / EACH_ITEMS), 1, 1 };

    if (n > 0)
        cb_gpu_run(g, p, kernel, groups, EACH_ITEMS, arg, n_arg, NULL);
}
