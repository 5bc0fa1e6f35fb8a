/* SPDX-License-Identifier: MIT */
/* cuda_program.c - loads what nvcc made of the kernels' texts, and runs kernels. */
#include <assert.h>
#include <stdlib.h>

#include "base/err.h"
#include "cuda_dev.h"

struct program {
    cuda_module module;
    struct gpu_options options;
    int has_options; /* 1: they are the first argument of each kernel (prelude.cu) */
};

struct kernel {
    cuda_function function;
    struct program *of;
};

static struct program *fail(const struct gpu *g, enum gpu_text text, int status)
{
    const struct cuda *c = g->own;
    char why[128];

    cb_cuda_explain(&c->api, status, why, sizeof why);
    cb_fail(CB_EUNSUPPORTED, "device %s: kernels %s do not load: %s", g->name,
            cb_gpu_text_name[text], why);
    return NULL;
}

void *cb_cuda_load(struct gpu *g, enum gpu_text text, const struct gpu_options *o)
{
    const void *image = cb_cuda_image(text, o->hd);
    struct program *p = cb_calloc(1, sizeof *p);
    const struct cuda *c;
    int status;

    if (!p)
        return NULL;
    p->options = *o;
    p->has_options = text == GPU_MATMUL || text == GPU_ATTENTION;
    if (!image) {
        cb_fail(CB_EUNSUPPORTED, "device %s: kernels %s: none for heads of %d numbers", g->name,
                cb_gpu_text_name[text], o->hd);
        free(p);
        return NULL;
    }
    c = cb_cuda_enter(g);
    status = c->api.module_load(&p->module, image);
    cb_cuda_leave(c);
    if (!status)
        return p;
    free(p);
    return fail(g, text, status);
}

void *cb_cuda_kernel(struct gpu *g, void *program, const char *name, int *status)
{
    struct kernel *k = cb_calloc(1, sizeof *k);
    const struct cuda *c;

    *status = CUDA_NO_MEMORY;
    if (!k)
        return NULL;
    k->of = program;
    c = cb_cuda_enter(g);
    *status = c->api.module_function(&k->function, k->of->module, name);
    cb_cuda_leave(c);
    if (!*status)
        return k;
    free(k);
    return NULL;
}

void cb_cuda_unload(struct gpu *g, void *program, void *const *kernel, int n_kernel)
{
    const struct cuda *c = cb_cuda_enter(g);
    struct program *p = program;

    for (int i = 0; i < n_kernel; i++)
        free(kernel[i]);
    c->api.module_unload(p->module);
    cb_cuda_leave(c);
    free(p);
}

int cb_cuda_run(struct gpu *g, void *kernel, const size_t groups[3], size_t items,
                const struct gpu_arg *arg, int n_arg, void *const *deep)
{
    enum { MOST_ARG = 24 };
    const struct kernel *k = kernel;
    const struct cuda *c;
    struct gpu_arg copy[MOST_ARG];
    void *at[MOST_ARG + 1];
    int n = 0, status;

    assert(n_arg <= MOST_ARG);
    (void)deep; /* kernels may reach all memory of the device */
    if (k->of->has_options)
        at[n++] = &k->of->options;
    for (int i = 0; i < n_arg; i++) {
        copy[i] = arg[i];
        at[n++] = &copy[i].as;
    }
    c = cb_cuda_enter(g);
    status = c->api.launch(k->function, (unsigned)groups[0], (unsigned)groups[1],
                           (unsigned)groups[2], (unsigned)items, 1, 1, 0, c->stream, at, NULL);
    cb_cuda_leave(c);
    return status;
}
