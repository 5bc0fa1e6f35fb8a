/* SPDX-License-Identifier: MIT */
/* cl_program.c - compiles kernels, keeps what was compiled in a folder, runs them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/opencl/cl_texts.h" /* made of kernels/ */
#include "base/err.h"
#include "cl.h"

enum { MOST_KERNEL = 16, EACH_ITEMS = 64 };

struct cl_program {
    struct cl_program *next;
    enum cl_text text;
    char options[96];
    cl_program program;
    int n;
    char name[MOST_KERNEL][16];
    cl_kernel kernel[MOST_KERNEL];
};

static const struct {
    const char *name, *text;
} texts[] = {
    [CL_MATMUL] = { "matmul", cl_text_matmul },
    [CL_VECTOR] = { "vector", cl_text_vector },
    [CL_SELECT] = { "select", cl_text_select },
    [CL_ATTENTION] = { "attention", cl_text_attention },
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
static uint64_t key_of(const struct cl *c, const struct cl_program *p)
{
    uint64_t h = hash(0xcbf29ce484222325, p->options, strlen(p->options));

    h = hash(h, cl_text_prelude, sizeof cl_text_prelude);
    h = hash(h, texts[p->text].text, strlen(texts[p->text].text));
    h = hash_info(c, h, CL_DEVICE_NAME);
    h = hash_info(c, h, CL_DEVICE_VERSION);
    return hash_info(c, h, CL_DRIVER_VERSION);
}

static int cache_path(const struct cl *c, uint64_t key, char *path, size_t size)
{
    const int n =
        snprintf(path, size, "%s/opencl-%016llx.bin", c->cache_dir, (unsigned long long)key);
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
static cl_program from_cache(const struct cl *c, const struct cl_program *p)
{
    const uint64_t key = key_of(c, p);
    const unsigned char *at;
    unsigned char *bin;
    cl_program program;
    cl_int err = CL_SUCCESS;
    char path[4096];
    size_t bytes;
    FILE *f;

    if (!c->cache_dir || !cache_path(c, key, path, sizeof path) || !(f = fopen(path, "rb")))
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
static void to_cache(const struct cl *c, const struct cl_program *p)
{
    struct head h = { .key = key_of(c, p) };
    unsigned char *bin;
    char path[4096], temp[4128];
    size_t bytes = 0;
    FILE *f;
    int ok;

    if (!c->cache_dir || !cache_path(c, h.key, path, sizeof path) ||
        clGetProgramInfo(p->program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) || !bytes)
        return;
    bin = malloc(bytes);
    snprintf(temp, sizeof temp, "%s.%ld", path, (long)getpid());
    f = bin && !clGetProgramInfo(p->program, CL_PROGRAM_BINARIES, sizeof bin, &bin, NULL)
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

static int compile(struct cl *c, struct cl_program *p)
{
    const char *parts[] = { cl_text_prelude, texts[p->text].text };
    char line[160];
    cl_int err;

    p->program = from_cache(c, p);
    if (p->program)
        return CB_OK;
    p->program = clCreateProgramWithSource(c->context, 2, parts, NULL, &err);
    if (!p->program)
        return cb_fail(CB_ENOMEM, "device %s: kernels %s: OpenCL status %d", c->name,
                       texts[p->text].name, (int)err);
    err = clBuildProgram(p->program, 1, &c->id, p->options, NULL, NULL);
    if (!err) {
        to_cache(c, p);
        return CB_OK;
    }
    complaint(c, p->program, line, sizeof line);
    clReleaseProgram(p->program);
    return cb_fail(CB_EUNSUPPORTED, "device %s: kernels %s (%s) do not compile: %s", c->name,
                   texts[p->text].name, p->options, line);
}

struct cl_program *cb_cl_program(struct cl *c, enum cl_text text, const char *options)
{
    struct cl_program *p;

    for (p = c->programs; p; p = p->next)
        if (p->text == text && !strcmp(p->options, options))
            return p;
    p = cb_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->text = text;
    snprintf(p->options, sizeof p->options, "%s", options);
    if (compile(c, p)) {
        free(p);
        return NULL;
    }
    p->next = c->programs;
    c->programs = p;
    return p;
}

void cb_cl_free_programs(struct cl *c)
{
    for (struct cl_program *p = c->programs, *next; p; p = next) {
        next = p->next;
        for (int i = 0; i < p->n; i++)
            clReleaseKernel(p->kernel[i]);
        clReleaseProgram(p->program);
        free(p);
    }
    c->programs = NULL;
}

/* ---- running ---- */

static cl_kernel kernel_of(struct cl *c, struct cl_program *p, const char *name)
{
    cl_int err = CL_OUT_OF_RESOURCES;

    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->name[i], name))
            return p->kernel[i];
    if (p->n < MOST_KERNEL) {
        p->kernel[p->n] = clCreateKernel(p->program, name, &err);
        snprintf(p->name[p->n], sizeof p->name[0], "%s", name);
    }
    if (err) {
        cb_cl_fail(c, name, err);
        return NULL;
    }
    return p->kernel[p->n++];
}

static cl_int set_deep(cl_kernel k, void *const *deep)
{
    size_t n = 0;

    while (deep && deep[n])
        n++;
    return n ? clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_PTRS, n * sizeof *deep, deep)
             : CL_SUCCESS;
}

void cb_cl_run(struct cl *c, struct cl_program *p, const char *kernel, const size_t groups[3],
               size_t items, const struct cl_arg *arg, int n_arg, void *const *deep)
{
    const size_t local[3] = { items, 1, 1 };
    const size_t global[3] = { groups[0] * items, groups[1], groups[2] };
    cl_kernel k = c->status ? NULL : kernel_of(c, p, kernel);
    cl_int err = CL_SUCCESS;

    if (!k || !groups[0] || !groups[1] || !groups[2])
        return;
    for (int i = 0; i < n_arg && !err; i++)
        err = arg[i].bytes ? clSetKernelArg(k, (cl_uint)i, arg[i].bytes, &arg[i].as)
                           : clSetKernelArgSVMPointer(k, (cl_uint)i, arg[i].as.p);
    if (!err)
        err = set_deep(k, deep);
    if (!err)
        err = clEnqueueNDRangeKernel(c->queue, k, 3, NULL, global, local, 0, NULL, NULL);
    if (err)
        cb_cl_fail(c, kernel, err);
}

void cb_cl_run_each(struct cl *c, struct cl_program *p, const char *kernel, int64_t n,
                    const struct cl_arg *arg, int n_arg)
{
    const size_t groups[3] = { (size_t)((n + EACH_ITEMS - 1) / EACH_ITEMS), 1, 1 };

    if (n > 0)
        cb_cl_run(c, p, kernel, groups, EACH_ITEMS, arg, n_arg, NULL);
}
