/* SPDX-License-Identifier: MIT */
/* cpu.c - the CPU device: chooses the kernels of the best supported ISA and fills the op table. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config.h"
#include "cpu/matmul/kern_mm.h"
#include "cpu/matmul/provider.h"
#include "cpu/peak/kern_peak.h"
#include "cpu/peak/peak.h"
#include "cpu/vector/kern_vec.h"
#include "kern.h"
#include "slab.h"

/* Best first */
static const struct cpu_kern kern[] = {
#ifdef HAVE_ISA_AVX512
    { "avx512", CPU_AVX512, &cb_mm_avx512, &cb_vec_avx512, &cb_peak_avx512 },
#endif
#ifdef HAVE_ISA_AVX2
    { "avx2", CPU_AVX2, &cb_mm_avx2, &cb_vec_avx2, &cb_peak_avx2 },
#endif
#ifdef HAVE_ISA_BF16
    { "bf16", CPU_BF16, &cb_mm_bf16, &cb_vec_neon, &cb_peak_bf16 },
#endif
#ifdef HAVE_ISA_I8MM
    { "i8mm", CPU_I8MM, &cb_mm_i8mm, &cb_vec_neon, &cb_peak_i8mm },
#endif
#ifdef HAVE_ISA_NEON
    { "neon", CPU_NEON, &cb_mm_neon, &cb_vec_neon, &cb_peak_neon },
#endif
    { "scalar", CPU_SCALAR, &cb_mm_scalar, &cb_vec_scalar, &cb_peak_scalar },
};

static const struct cpu_kern *choose_isa(const char *want)
{
    const int n = (int)(sizeof kern / sizeof *kern);

    for (int i = 0; i < n; i++) {
        if (want && strcmp(want, kern[i].name))
            continue;
        if (cb_cpu_has(kern[i].isa))
            return &kern[i];
    }
    cb_fail(CB_EUNSUPPORTED, "instruction set %s: not built in, or not on this machine", want);
    return NULL;
}

const char *cb_cpu_isa_at(int i)
{
    for (int k = 0; k < (int)(sizeof kern / sizeof *kern); k++)
        if (cb_cpu_has(kern[k].isa) && i-- == 0)
            return kern[k].name;
    return NULL;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int64_t reserve(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx)
{
    const int64_t matmul = cb_cpu_matmul_reserve(d, n_tok, max_in);

    (void)max_out;
    if (matmul < 0)
        return matmul;
    TRY(cb_par_reserve(d->par, largest(cb_cpu_attn_scratch(d, n_head, hd, n_ctx),
                                       cb_cpu_topk_scratch(n_ctx, n_head))));
    return matmul + (int64_t)cb_par_scratch_bytes(d->par);
}

/* Ops without a kernel here use the reference implementation. */
static void fill(struct cpu *c)
{
    struct device ref = { 0 };

    cb_backend_ref.open(&ref, NULL);
    c->ops = *ref.ops;
    c->ops.name = "cpu";
    c->ops.load = cb_cpu_load;
    c->ops.unload = cb_cpu_unload;
    c->ops.reserve = reserve;
    c->ops.limits = cb_cpu_limits;
    c->ops.matmul = cb_cpu_matmul;
    c->ops.matmul_sets = cb_cpu_matmul_sets;
    c->ops.matmul_rows = cb_cpu_matmul_rows;
    c->ops.matmul_glu = cb_cpu_matmul_glu;
    c->ops.get_rows = cb_cpu_get_rows;
    c->ops.rmsnorm = cb_cpu_rmsnorm;
    c->ops.layernorm = cb_cpu_layernorm;
    c->ops.rope = cb_cpu_rope;
    c->ops.glu = cb_cpu_glu;
    c->ops.add = cb_cpu_add;
    c->ops.scale = cb_cpu_scale;
    c->ops.attention = cb_cpu_attention;
    c->ops.score = cb_cpu_score;
    c->ops.join = cb_cpu_join;
    c->ops.sink = cb_cpu_sink;
    c->ops.kv_encode = cb_cpu_kv_encode;
    c->ops.kv_decode = cb_cpu_kv_decode;
    c->ops.nearest = cb_cpu_nearest;
    c->ops.can_prepack = cb_cpu_can_prepack;
    c->ops.prepack = cb_cpu_prepack;
    c->ops.prepack_row = cb_cpu_prepack_row;
    c->ops.unpack = cb_cpu_unpack;
    c->ops.best_head = cb_cpu_best_head;
    c->ops.topk = cb_cpu_topk;
    c->ops.sketch = cb_cpu_sketch;
    c->ops.sketch_topk = cb_cpu_sketch_topk;
    c->ops.bounds = cb_cpu_bounds;
    c->ops.page_scores = cb_cpu_page_scores;
    c->ops.block_mass = cb_cpu_block_mass;
    c->ops.line_sums = cb_cpu_line_sums;
    c->ops.short_conv = cb_cpu_short_conv;
    c->ops.decays = cb_cpu_decays;
    c->ops.recurrence = cb_cpu_recurrence;
}

static void free_cpu(struct cpu *c)
{
    cb_slab_free_all(&c->slabs);
    free(c->x);
    free(c->own);
    free(c);
}

static int open_cpu(struct device *d, const struct device_want *want)
{
    const struct cpu_kern *k = choose_isa(want->isa);
    const size_t n_thread = (size_t)cb_par_threads(d->par);
    struct cpu *c;
    int err;

    if (!k)
        return CB_EUNSUPPORTED;
    c = cb_calloc(1, sizeof *c);
    if (!c)
        return CB_ENOMEM;
    c->kern = k;
    c->own = cb_alloc_aligned(n_thread, sizeof *c->own);
    err = c->own ? cb_provider_choose(want->matmul, &c->provider) : CB_ENOMEM;
    if (err) {
        free_cpu(c);
        return err;
    }
    memset(c->own, 0, n_thread * sizeof *c->own);
    fill(c);
    d->impl = c;
    d->ops = &c->ops;
    d->isa = k->name;
    return CB_OK;
}

static void close_cpu(struct device *d)
{
    free_cpu(d->impl);
}

static int available(const char **why_not)
{
    (void)why_not;
    return 1;
}

const struct backend cb_backend_cpu = {
    .name = "cpu",
    .text = "vector kernels for this machine's CPU, chosen at run time",
    .open = open_cpu,
    .close = close_cpu,
    .available = available,
};
