/* SPDX-License-Identifier: MIT */
/* cl_program.c - compiles kernels' texts, keeps what was compiled in a folder, runs kernels. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/opencl/cl_texts.h" /* made of kernels/ */
#include "base/err.h"
#include "cl.h"

static const char *const text_of[GPU_TEXT_COUNT] = {
    [GPU_MATMUL] = cl_text_matmul, [GPU_GEMM] = cl_text_gemm,
    [GPU_VECTOR] = cl_text_vector, [GPU_SELECT] = cl_text_select,
    [GPU_SEARCH] = cl_text_search, [GPU_PAGES] = cl_text_pages,
    [GPU_INDEX] = cl_text_index,   [GPU_ATTENTION] = cl_text_attention,
    [GPU_PEAK] = cl_text_peak,
};

/* What is compiled: a text and the compiler's options */
struct source {
    enum gpu_text text;
    char options[128];
};

/* ---- what was compiled before ---- */

/* A file of the cache: this head, then what the driver gave. */
struct head {
    char magic[8];
    uint64_t key, bytes, sum;
};

static const char magic[8] = "ctxbkcl1";

static uint64_t hash(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3;
    return h;
}

static uint64_t hash_info(const struct cl *c, uint64_t h, cl_device_info what)
{
    char text[256] = "";

    clGetDeviceInfo(c->id, what, sizeof text - 1, text, NULL);
    return hash(h, text, strlen(text));
}

/* Of everything that what is compiled depends on */
static uint64_t key_of(const struct cl *c, const struct source *p)
{
    uint64_t h = hash(0xcbf29ce484222325, p->options, strlen(p->options));

    h = hash(h, cl_text_prelude, sizeof cl_text_prelude);
    h = hash(h, cl_text_group, sizeof cl_text_group);
    h = hash(h, cl_text_long_list, sizeof cl_text_long_list);
    h = hash(h, cl_text_rows, sizeof cl_text_rows);
    h = hash(h, text_of[p->text], strlen(text_of[p->text]));
    h = hash_info(c, h, CL_DEVICE_NAME);
    h = hash_info(c, h, CL_DEVICE_VERSION);
    return hash_info(c, h, CL_DRIVER_VERSION);
}

static int cache_path(const struct gpu *g, uint64_t key, char *path, size_t size)
{
    const int n =
        snprintf(path, size, "%s/opencl-%016llx.bin", g->cache_dir, (unsigned long long)key);
    return n > 0 && (size_t)n < size;
}

static unsigned char *read_all(FILE *f, uint64_t key, size_t *bytes)
{
    struct head h;
    unsigned char *p;

    if (fread(&h, sizeof h, 1, f) != 1 || memcmp(h.magic, magic, sizeof magic) || h.key != key ||
        h.bytes < 1 || h.bytes > 64u << 20)
        return NULL;
    p = malloc(h.bytes);
    if (p && (fread(p, 1, h.bytes, f) != h.bytes || hash(0, p, h.bytes) != h.sum)) {
        free(p);
        return NULL;
    }
    *bytes = h.bytes;
    return p;
}

/* A damaged or foreign file counts as none. */
static cl_program from_cache(const struct gpu *g, const struct source *p)
{
    const struct cl *c = cb_cl_of(g);
    const uint64_t key = key_of(c, p);
    const unsigned char *at;
    unsigned char *bin;
    cl_program program;
    cl_int err = CL_SUCCESS;
    char path[4096];
    size_t bytes;
    FILE *f;

    if (!g->cache_dir || !cache_path(g, key, path, sizeof path) || !(f = fopen(path, "rb")))
        return NULL;
    at = bin = read_all(f, key, &bytes);
    fclose(f);
    if (!bin)
        return NULL;
    program = clCreateProgramWithBinary(c->context, 1, &c->id, &bytes, &at, NULL, &err);
    free(bin);
    if (!program)
        return NULL;
    if (err || clBuildProgram(program, 1, &c->id, p->options, NULL, NULL)) {
        clReleaseProgram(program);
        return NULL;
    }
    return program;
}

/* No cache is no failure. */
static void to_cache(const struct gpu *g, const struct source *p, cl_program program)
{
    const struct cl *c = cb_cl_of(g);
    struct head h = { .key = key_of(c, p) };
    unsigned char *bin;
    char path[4096], temp[4128];
    size_t bytes = 0;
    FILE *f;
    int ok;

    if (!g->cache_dir || !cache_path(g, h.key, path, sizeof path) ||
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) || !bytes)
        return;
    bin = malloc(bytes);
    snprintf(temp, sizeof temp, "%s.%ld", path, (long)getpid());
    f = bin && !clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bin, &bin, NULL)
            ? fopen(temp, "wb")
            : NULL;
    if (f) {
        memcpy(h.magic, magic, sizeof magic);
        h.bytes = bytes;
        h.sum = hash(0, bin, bytes);
        ok = fwrite(&h, sizeof h, 1, f) == 1 && fwrite(bin, 1, bytes, f) == bytes;
        ok &= !fclose(f);
        if (!ok || rename(temp, path))
            unlink(temp);
    }
    free(bin);
}

/* ---- compiling ---- */

/* The first line of the compiler's complaint that names an error, else its first line */
static void complaint(const struct cl *c, cl_program program, char *line, size_t size)
{
    char *log = NULL;
    const char *at;
    size_t n = 0, len;

    snprintf(line, size, "no message");
    if (clGetProgramBuildInfo(program, c->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) || !n ||
        !(log = calloc(n + 1, 1)))
        return;
    clGetProgramBuildInfo(program, c->id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
    at = strstr(log, "error:");
    at = at ? at : log;
    len = strcspn(at, "\n");
    if (len)
        snprintf(line, size, "%.*s", (int)len, at);
    free(log);
}

static cl_program compile(struct gpu *g, const struct source *p)
{
    const struct cl *c = cb_cl_of(g);
    const char *parts[] = { cl_text_prelude, cl_text_group, cl_text_long_list, cl_text_rows,
                            text_of[p->text] };
    cl_program program = from_cache(g, p);
    char line[160];
    cl_int err;

    if (program)
        return program;
    program =
        clCreateProgramWithSource(c->context, sizeof parts / sizeof *parts, parts, NULL, &err);
    if (!program) {
        cb_cl_explain(g, err, line, sizeof line);
        cb_fail(CB_ENOMEM, "device %s: kernels %s: %s", g->name, cb_gpu_text_name[p->text], line);
        return NULL;
    }
    err = clBuildProgram(program, 1, &c->id, p->options, NULL, NULL);
    if (!err) {
        to_cache(g, p, program);
        return program;
    }
    complaint(c, program, line, sizeof line);
    clReleaseProgram(program);
    cb_fail(CB_EUNSUPPORTED, "device %s: kernels %s (%s) do not compile: %s", g->name,
            cb_gpu_text_name[p->text], p->options, line);
    return NULL;
}

void *cb_cl_load(struct gpu *g, enum gpu_text text, const struct gpu_options *o)
{
    struct source p = { .text = text };

    snprintf(p.options, sizeof p.options, "-DTYPE=%d -DTYPE_V=%d -DHD=%d -DKIVI=%d%s", o->type,
             o->type_v, o->hd, o->kivi,
             cb_cl_of(g)->subgroups ? " -cl-std=CL3.0 -DHAS_SUBGROUPS" : "");
    return compile(g, &p);
}

void *cb_cl_kernel(struct gpu *g, void *program, const char *name, int *status)
{
    (void)g;
    return clCreateKernel(program, name, status);
}

void cb_cl_unload(struct gpu *g, void *program, void *const *kernel, int n_kernel)
{
    (void)g;
    for (int i = 0; i < n_kernel; i++)
        clReleaseKernel(kernel[i]);
    clReleaseProgram(program);
}

/* ---- running ---- */

static cl_int set_deep(cl_kernel k, void *const *deep)
{
    size_t n = 0;

    while (deep && deep[n])
        n++;
    return n ? clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_PTRS, n * sizeof *deep, deep)
             : CL_SUCCESS;
}

int cb_cl_run(struct gpu *g, void *kernel, const size_t groups[3], size_t items,
              const struct gpu_arg *arg, int n_arg, void *const *deep)
{
    const size_t local[3] = { items, 1, 1 };
    const size_t global[3] = { groups[0] * items, groups[1], groups[2] };
    cl_int err = CL_SUCCESS;

    for (int i = 0; i < n_arg && !err; i++)
        err = arg[i].bytes ? clSetKernelArg(kernel, (cl_uint)i, arg[i].bytes, &arg[i].as)
                           : clSetKernelArgSVMPointer(kernel, (cl_uint)i, arg[i].as.p);
    if (!err)
        err = set_deep(kernel, deep);
    if (err)
        return err;
    return clEnqueueNDRangeKernel(cb_cl_of(g)->queue, kernel, 3, NULL, global, local, 0, NULL,
                                  NULL);
}
