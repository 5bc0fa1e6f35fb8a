/* SPDX-License-Identifier: MIT */
/* time_ops.c - selection of rows, the clock, and output of rows. */
#include "time_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "bank/pages.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/linux_flags.h"
#include "base/suggest.h"
#include "cpu/matmul/provider.h"

const struct op_shape cb_op_shape[] = {
    { "SmolLM2-135M", 576, 1536, 9, 3, 64, 49152, 8192 },
    { "Qwen2.5-0.5B", 896, 4864, 14, 2, 64, 151936, 16384 },
    { "Gemma-3-270M", 640, 2048, 4, 1, 256, 262144, 8192 },
    { "Llama-3-8B", 4096, 14336, 32, 8, 128, 128256, 8192 },
    { .model = NULL },
};

const struct op_index_shape cb_op_index_shape[] = {
    { "DeepSeek-V3.2", 64, 128, 2048, 0 },
    { "GLM-5", 32, 128, 2048, 0 },
    { "MiniMax-M3", 4, 128, 16, 128 },
    { .model = NULL },
};

enum { N_SHAPE = sizeof cb_op_shape / sizeof *cb_op_shape - 1 };

static const char *const op_name[] = {
    "limit",       "matmul",      "matmul_glu",  "matmul_rows",   "decode",     "prompt",
    "gather",      "prepacked",   "prompt_long", "prompt_blocks", "block_mass", "rows",
    "embed",       "norm",        "rope",        "glu",           "add",        "store",
    "prepack",     "score",       "join",        "topk",          "best_head",  "nearest",
    "sketch",      "sketch_topk", "bounds",      "page_scores",   "page_topk",  "found",
    "decode_long", "conv",        "state",       "index_scan",    "index_topk", "block_topk",
    NULL
};

/* ---- what is wanted ---- */

static int same(const char *word, size_t n, const char *name)
{
    return strlen(name) == n && !strncasecmp(word, name, n);
}

struct names {
    enum op_kind kind;
    const struct cpu_tiers *tiers;
};

/* The i-th name of ctx; NULL past the last */
static const char *name_at(const void *ctx, int i)
{
    const struct names *names = ctx;
    static const char *const other[] = { "kivi4",        "kivi2",  "sketch4", "sketch2",
                                         "sketch2-half", "strips", NULL };

    switch (names->kind) {
    case KIND_OP:
        return op_name[i];
    case KIND_TYPE:
        return i < DT_COUNT                   ? cb_dtype[i].name
               : i < DT_COUNT + KV_TYPE_COUNT ? cb_kv_type[i - DT_COUNT].name
                                              : other[i - DT_COUNT - KV_TYPE_COUNT];
    case KIND_MODEL:
        return i < N_SHAPE ? cb_op_shape[i].model : cb_op_index_shape[i - N_SHAPE].model;
    case KIND_ISA:
        return cb_cpu_isa_at(names->tiers, i);
    default:
        return i ? cb_provider_at(i - 1) : "own";
    }
}

static int is_kind(const struct op_pick *p, enum op_kind kind, const char *word, size_t n)
{
    const struct names names = { kind, p->tiers };
    const char *name;

    for (int i = 0; (name = name_at(&names, i)); i++)
        if (same(word, n, name))
            return 1;
    return 0;
}

static const char *nearest(const struct op_pick *p, const char *word, size_t n)
{
    struct names names = { .tiers = p->tiers };
    const char *near = NULL;

    for (; names.kind < KIND_COUNT && !near; names.kind++)
        near = cb_name_nearest(word, n, name_at, &names);
    return near;
}

int cb_op_pick_check(const struct op_pick *p)
{
    for (const char *w = p->words; w && *w;) {
        const size_t n = strcspn(w, ",");
        const char *near;
        int known = 0;

        for (enum op_kind k = 0; k < KIND_COUNT; k++)
            known |= is_kind(p, k, w, n);
        near = known ? NULL : nearest(p, w, n);
        if (!known)
            return cb_fail(CB_EARG, "%.*s: no op, type, model or ISA of this machine%s%s%s", (int)n,
                           w, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        w += n + (w[n] == ',');
    }
    return CB_OK;
}

static int picked(const struct op_pick *p, enum op_kind kind, const char *name)
{
    int any = 0;

    for (const char *w = p->words; w && *w;) {
        const size_t n = strcspn(w, ",");
        if (is_kind(p, kind, w, n)) {
            any = 1;
            if (same(w, n, name))
                return 1;
        }
        w += n + (w[n] == ',');
    }
    return !any;
}

int cb_op_picked(const struct op_bench *b, enum op_kind kind, const char *name)
{
    return picked(b->pick, kind, name);
}

int cb_op_any_picked(const struct op_bench *b, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (cb_op_picked(b, KIND_OP, names[i]))
            return 1;
    return 0;
}

/* ---- the clock ---- */

struct timing {
    struct device *d;
    void (*fn)(void *ctx);
    void *ctx;
    int rough, failed;
    double best;
};

/* Runs at least three rounds, more while they are short; one if it takes long. */
static void rounds(void *ctx)
{
    enum { LEAST = 3, MOST = 50 };
    const double enough = 0.06, too_long = 0.3;
    struct timing *t = ctx;
    double sum = 0;

    for (int r = 0; r < MOST && (r < LEAST || sum < enough) && (!r || sum < too_long); r++) {
        const double start = cb_now_s();
        double s;

        t->fn(t->ctx);
        if (cb_device_wait(t->d))
            t->failed = 1;
        s = cb_now_s() - start;
        sum += s;
        if (!r || s < t->best)
            t->best = s;
        if (t->rough && r) /* the first round may have opened a library or touched new memory */
            break;
    }
}

double cb_op_time(struct op_bench *b, void (*fn)(void *ctx), void *ctx, int rough)
{
    struct timing t = { b->d, fn, ctx, rough, 0, 0 };

    cb_par_run(b->d->par, rounds, &t);
    b->failed |= t.failed;
    return t.best;
}

/* ---- rows ---- */

int cb_op_emit(struct op_bench *b, struct op_row *row)
{
    if (b->failed)
        return CB_EIO; /* cb_error() has the device's words */
    row->isa = b->d->isa;
    row->threads = row->threads ? row->threads : cb_par_threads(b->d->par);
    row->matmul = row->matmul ? row->matmul : "";
    row->type = row->type ? row->type : "";
    row->model = row->model ? row->model : "";
    return b->emit(b->arg, row);
}

void cb_op_fill(float *x, size_t n)
{
    uint32_t s = 1;

    for (size_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) / (float)(1 << 23) - 1;
    }
}

float *cb_op_floats(struct op_bench *b, size_t n)
{
    float *host = cb_calloc(n, sizeof *host), *on = NULL;

    if (host)
        on = cb_device_alloc(b->d, n, sizeof *on);
    if (on) {
        cb_op_fill(host, n);
        cb_device_copy(b->d, on, host, n * sizeof *host);
    }
    free(host);
    return on;
}

int cb_op_reserve(size_t bytes, void *out)
{
    void *p;

    TRY(cb_pages_reserve(bytes, &p));
    madvise(p, bytes, MADV_HUGEPAGE);
    memcpy(out, &p, sizeof p);
    return CB_OK;
}
