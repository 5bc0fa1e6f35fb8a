/* SPDX-License-Identifier: MIT */
/* cpu.c - the CPU device: chooses the kernels of the best ISA that is there, fills the op table. */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "err.h"
#include "kern.h"

/* Best first; CTXBANK_ISA takes a name. */
static const struct cpu_kern kern[] = {
#ifdef HAVE_ISA_AVX512
    { "avx512", CPU_AVX512, NULL, NULL },
#endif
#ifdef HAVE_ISA_AVX2
    { "avx2", CPU_AVX2, NULL, NULL },
#endif
#ifdef HAVE_ISA_NEON
    { "neon", CPU_NEON, NULL, NULL },
#endif
    { "scalar", CPU_SCALAR, NULL, NULL },
};

static const struct cpu_kern *choose_isa(void)
{
    const char *want = getenv("CTXBANK_ISA");
    const int n = (int)(sizeof kern / sizeof *kern);

    if (want && !*want)
        want = NULL;
    for (int i = 0; i < n; i++) {
        if (want && strcmp(want, kern[i].name))
            continue;
        if (cb_cpu_has(kern[i].isa))
            return &kern[i];
    }
    cb_fail(CB_EUNSUPPORTED, "CTXBANK_ISA=%s: not built, or not on this machine", want);
    return NULL;
}

static int64_t reserve(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx)
{
    size_t bytes = cb_cpu_matmul_scratch(n_tok, max_in);

    (void)max_out, (void)n_head, (void)hd, (void)n_ctx;
    TRY(cb_par_reserve(d->par, bytes));
    return (int64_t)cb_par_scratch_bytes(d->par);
}

/* Ops without a kernel here run as the reference does them. */
static void fill(struct cpu *c)
{
    struct device ref = { 0 };

    cb_backend_ref.open(&ref);
    c->ops = *ref.ops;
    c->ops.name = "cpu";
    c->ops.load = cb_cpu_load;
    c->ops.unload = cb_cpu_unload;
    c->ops.reserve = reserve;
    c->ops.matmul = cb_cpu_matmul;
    c->ops.get_rows = cb_cpu_get_rows;
}

static int open_cpu(struct device *d)
{
    const struct cpu_kern *k = choose_isa();
    struct cpu *c;

    if (!k)
        return CB_EUNSUPPORTED;
    c = cb_calloc(1, sizeof *c);
    if (!c)
        return CB_ENOMEM;
    c->kern = k;
    fill(c);
    d->impl = c;
    d->ops = &c->ops;
    d->isa = k->name;
    return CB_OK;
}

static void close_cpu(struct device *d)
{
    free(d->impl);
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
