/* SPDX-License-Identifier: MIT */
/* cpu.c - the CPU device: chooses the kernels of the best supported tier and fills the op table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config.h"
#include "cpu/matmul/kern_mm.h"
#include "cpu/matmul/provider.h"
#include "cpu/peak/kern_peak.h"
#include "cpu/peak/peak.h"
#include "cpu/vector/kern_vec.h"
#include "cpuid.h"
#include "kern.h"
#include "slab.h"

enum {
    NEEDS_AVX2 = CPU_AVX2 | CPU_FMA | CPU_F16C,
    NEEDS_AVXVNNI = NEEDS_AVX2 | CPU_AVX_VNNI,
    NEEDS_AVX512BW = NEEDS_AVX2 | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL,
    NEEDS_AVX512VNNI = NEEDS_AVX512BW | CPU_AVX512_VNNI,
    NEEDS_AVX512VBMI = NEEDS_AVX512VNNI | CPU_AVX512_VBMI,
    NEEDS_AMX = NEEDS_AVX512VBMI | CPU_AMX_TILE | CPU_AMX_INT8,
    NEEDS_NEON = CPU_DOTPROD,
    NEEDS_I8MM = NEEDS_NEON | CPU_I8MM,
    NEEDS_BF16 = NEEDS_I8MM | CPU_BF16
};

/* Best first */
static const struct cpu_kern kern[] = {
#ifdef HAVE_ISA_AMX
    { "amx", NULL, NEEDS_AMX, &cb_mm_avx512vnni, &cb_vec_avx512, &cb_dots_avx512vnni,
      &cb_kivi_dots_avx512vbmi, &cb_peak_amx, &cb_many_amx },
#endif
#ifdef HAVE_ISA_AVX512VBMI
    { "avx512vbmi", "avx512", NEEDS_AVX512VBMI, &cb_mm_avx512vnni, &cb_vec_avx512,
      &cb_dots_avx512vnni, &cb_kivi_dots_avx512vbmi, &cb_peak_avx512vnni, NULL },
#endif
#ifdef HAVE_ISA_AVX512VNNI
    { "avx512vnni", "avx512", NEEDS_AVX512VNNI, &cb_mm_avx512vnni, &cb_vec_avx512,
      &cb_dots_avx512vnni, NULL, &cb_peak_avx512vnni, NULL },
#endif
#ifdef HAVE_ISA_AVX512
    { "avx512bw", "avx512", NEEDS_AVX512BW, &cb_mm_avx512, &cb_vec_avx512, &cb_dots_avx512, NULL,
      &cb_peak_avx512, NULL },
#endif
#ifdef HAVE_ISA_AVXVNNI
    { "avxvnni", NULL, NEEDS_AVXVNNI, &cb_mm_avxvnni, &cb_vec_avx2, &cb_dots_avxvnni, NULL,
      &cb_peak_avxvnni, NULL },
#endif
#ifdef HAVE_ISA_AVX2
    { "avx2", NULL, NEEDS_AVX2, &cb_mm_avx2, &cb_vec_avx2, &cb_dots_avx2, NULL, &cb_peak_avx2,
      NULL },
#endif
#ifdef HAVE_ISA_BF16
    { "bf16", NULL, NEEDS_BF16, &cb_mm_bf16, &cb_vec_neon, &cb_dots_neon, NULL, &cb_peak_bf16,
      NULL },
#endif
#ifdef HAVE_ISA_I8MM
    { "i8mm", NULL, NEEDS_I8MM, &cb_mm_i8mm, &cb_vec_neon, &cb_dots_neon, NULL, &cb_peak_i8mm,
      NULL },
#endif
#ifdef HAVE_ISA_NEON
    { "neon", NULL, NEEDS_NEON, &cb_mm_neon, &cb_vec_neon, &cb_dots_neon, NULL, &cb_peak_neon,
      NULL },
#endif
    { "scalar", NULL, 0, &cb_mm_scalar, &cb_vec_scalar, &cb_dots_scalar, NULL, &cb_peak_scalar,
      NULL },
};

const struct cpu_kern *cb_cpu_kern_at(int i)
{
    return i >= 0 && i < (int)(sizeof kern / sizeof *kern) ? &kern[i] : NULL;
}

static int is_called(const struct cpu_kern *k, const char *name)
{
    return !name || !strcmp(name, k->name) || (k->family && !strcmp(name, k->family));
}

const struct cpu_kern *cb_cpu_choose(uint32_t features, const char *want)
{
    const struct cpu_kern *k;

    for (int i = 0; (k = cb_cpu_kern_at(i)); i++)
        if (is_called(k, want) && !(k->needs & ~features))
            return k;
    return NULL;
}

void cb_cpu_compose(const struct cpu_kern *k, struct cpu_vec *out)
{
    const struct kern_dots *dots = k->dots;

    *out = (struct cpu_vec){ *k->vec, *k->vec->attn, *k->vec->kivi };
    if (dots->qk_q8)
        out->attn.qk[KV_Q8_0] = dots->qk_q8;
    out->attn.qk_half = dots->qk_half;
    out->attn.prepack[KV_F16] = out->attn.prepack[KV_BF16] = dots->prepack_half;
    out->attn.prepack[KV_Q8_0] = dots->prepack_q8;
    out->attn.pack_v_i16 = dots->pack_v_i16;
    out->attn.pv_i16 = dots->pv_i16;
    if (k->kivi) {
        out->kivi.logits = k->kivi->logits;
        out->kivi.pv = k->kivi->pv;
    }
    out->vec.attn = &out->attn;
    out->vec.kivi = &out->kivi;
    out->vec.sketch = dots->sketch;
    out->vec.index = dots->index ? dots->index : &cb_index_kern_plain;
}

/* What a tier needs and the machine lacks -> "avx512_vbmi, avx512_bf16" */
static void name_missing(uint32_t missing, char *out, size_t size)
{
    size_t n = 0;

    *out = '\0';
    for (int i = 0; cb_cpu_feature_name(i); i++)
        if (missing >> i & 1 && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", cb_cpu_feature_name(i));
}

/* Whether a tier's tiles may be used: the system saves them, and they multiply as vectors do */
static int try_tiles(const struct cpu_kern *k, char *why, size_t size)
{
    const int refused = cb_cpu_permit_tiles();

    if (refused) {
        snprintf(why, size, "the system refuses tiles: %s", strerror(refused));
        return 0;
    }
    return !cb_many_check(k->many, k->mm, why, size);
}

void cb_cpu_find_tiers(struct cpu_tiers *out)
{
    const uint32_t all = cb_cpu_features();
    const struct cpu_kern *k;

    *out = (struct cpu_tiers){ .usable = all };
    for (int i = 0; (k = cb_cpu_kern_at(i)); i++)
        if (k->many && !(k->needs & ~all) && !try_tiles(k, out->why, sizeof out->why)) {
            out->usable = all & ~(uint32_t)(CPU_AMX_TILE | CPU_AMX_INT8 | CPU_AMX_BF16);
            return;
        }
    *out->why = '\0';
}

/* What a tier needs and cannot use -> "avx512_vnni", "amx_tile (the system refuses ...)" */
static void name_lack(const struct cpu_kern *k, const struct cpu_tiers *t, char *out, size_t size)
{
    size_t n;

    name_missing(k->needs & ~t->usable, out, size);
    n = strlen(out);
    if (k->many && *t->why)
        snprintf(out + n, size - n, " (%s)", t->why);
}

static const struct cpu_kern *choose_isa(const struct device_want *want, const struct cpu_tiers *t)
{
    char missing[256], line[256];
    const struct cpu_kern *const best = cb_cpu_choose(t->usable, want->isa);
    const struct cpu_kern *other = best ? NULL : cb_cpu_choose(UINT32_MAX, want->isa);

    if (other) {
        name_lack(other, t, missing, sizeof missing);
        cb_fail(CB_EUNSUPPORTED, "instruction set %s: this machine lacks %s", want->isa, missing);
    } else if (!best) {
        cb_fail(CB_EUNSUPPORTED, "instruction set %s: not built in", want->isa);
    } else if (*t->why && !want->isa && want->log) {
        snprintf(line, sizeof line, "kernels: %s instead of those with tiles: %s", best->name,
                 t->why);
        want->log(want->log_arg, CB_LOG_NOTE, line);
    }
    return best;
}

const struct cpu_tiers *cb_cpu_tiers_of(const struct device *d)
{
    return &((const struct cpu *)d->impl)->tiers;
}

const char *cb_cpu_isa_at(const struct cpu_tiers *t, int i)
{
    for (int k = 0; k < (int)(sizeof kern / sizeof *kern); k++)
        if (!(kern[k].needs & ~t->usable) && i-- == 0)
            return kern[k].name;
    return NULL;
}

const char *cb_cpu_isa_above(const struct cpu_tiers *t, const char *isa, char *missing, size_t size)
{
    for (int k = 1; k < (int)(sizeof kern / sizeof *kern); k++)
        if (!strcmp(isa, kern[k].name)) {
            name_lack(&kern[k - 1], t, missing, size);
            return kern[k - 1].name;
        }
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
    TRY(cb_par_reserve(d->par, cb_cpu_attn_scratch(d, n_head, hd)));
    TRY(cb_par_reserve_shared(d->par, largest(cb_cpu_attn_shared(d, n_head, hd, n_ctx),
                                              cb_cpu_topk_scratch(n_ctx, n_head))));
    return matmul + (int64_t)cb_par_scratch_bytes(d->par);
}

static int reserve_blocks(struct device *d, int n_head, int hd, int n_ctx)
{
    TRY(cb_par_reserve(d->par, cb_cpu_block_mass_scratch(cb_cpu_vec(d)->attn, hd, n_ctx)));
    return cb_par_reserve(d->par, cb_cpu_sketch_mass_scratch(hd, n_head, n_ctx));
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
    c->ops.reserve_blocks = reserve_blocks;
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
    c->ops.head_lse = cb_cpu_head_lse;
    c->ops.topk = cb_cpu_topk;
    c->ops.sketch = cb_cpu_sketch;
    c->ops.sketch_topk = cb_cpu_sketch_topk;
    c->ops.bounds = cb_cpu_bounds;
    c->ops.page_scores = cb_cpu_page_scores;
    c->ops.index_scan = cb_cpu_index_scan;
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
    const size_t n_thread = (size_t)cb_par_threads(d->par);
    struct cpu *c = cb_calloc(1, sizeof *c);
    const struct cpu_kern *k;
    int err;

    if (!c)
        return CB_ENOMEM;
    cb_cpu_find_tiers(&c->tiers);
    k = choose_isa(want, &c->tiers);
    if (!k) {
        free_cpu(c);
        return CB_EUNSUPPORTED;
    }
    c->kern = k;
    c->all_lines = k->mm->q8_all_lines && cb_cpu_prefetches_late();
    cb_cpu_compose(k, &c->vec);
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
