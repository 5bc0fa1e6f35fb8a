/* SPDX-License-Identifier: MIT */
/* kern.h - the CPU device and its kernels, one row per tier. The sources of a tier are compiled
 * with its own flags and export only their table (cb_mm_avx2, cb_vec_avx2, ...). A tier takes from
 * the one below it what its own instructions do not make faster. cpu.c chooses a row when the
 * device opens. */
#ifndef KERN_H
#define KERN_H

#include "cpu/vector/kern_vec.h"
#include "cpuid.h"
#include "device/device.h"
#include "tiers.h"

struct kern_mm;   /* kern_mm.h: packing and matrix products */
struct kern_many; /* there: products of many tokens at once */
struct kern_peak; /* kern_peak.h: peak rates of the tier */

struct cpu_kern {
    const char *name;   /* as in struct device_want */
    const char *family; /* another name for the best tier of several, or NULL */
    uint32_t needs;     /* cpu_feature bits */
    const struct kern_mm *mm;
    const struct kern_vec *vec; /* the rest */
    const struct kern_dots *dots;
    const struct kern_kivi_dots *kivi; /* NULL: none */
    const struct kern_peak *peak;
    const struct kern_many *many; /* NULL: mm's panels. They use the tiles of AMX */
};

/* The tiers that are built in, best first; NULL past the last */
const struct cpu_kern *cb_cpu_kern_at(int i);
/* The best tier of this name or family, or (want = NULL) of all, for which `features` suffice;
 * NULL: there is none */
const struct cpu_kern *cb_cpu_choose(uint32_t features, const char *want);

/* A tier's kernels: its parts as one table */
struct cpu_vec {
    struct kern_vec vec;
    struct kern_attn attn;
    struct kern_kivi kivi;
};

void cb_cpu_compose(const struct cpu_kern *k, struct cpu_vec *out);

/* The one-token pass whose activations lie quantised in a thread's scratch */
struct own_x {
    _Alignas(64) uint64_t pass;
};

/* How a pass was cut into items, for later ones of the same shape (shares.c) */
struct pass_cut {
    const void *w, *up; /* its first matrix and up projection */
    int n_mm, n_tok, n_set, kind;
    size_t unit;
    int panels, split;
    double time;
};
enum { PASS_CUTS = 256 };

/* device->impl of a CPU device */
struct cpu {
    const struct cpu_kern *kern;
    struct cpu_tiers tiers; /* which could be chosen */
    struct cpu_vec vec;
    struct ops ops;                  /* device->ops points here */
    const struct provider *provider; /* multiplies many tokens; NULL: mm does */
    struct slab *slabs;              /* packed weights */
    void *x;                         /* activations prepared for a matmul */
    size_t x_bytes;
    int all_lines;     /* 1: the tier's q8_all_lines multiplies Q8_0 (cpuid.h) */
    size_t panel_room; /* bytes of a thread's panels, at least */
    struct own_x *own; /* [threads] */
    uint64_t n_pass;   /* passes of matmul so far */
    struct pass_cut cut[PASS_CUTS];
};

static inline const struct cpu_kern *cb_cpu_kern(const struct device *d)
{
    return ((const struct cpu *)d->impl)->kern;
}

static inline const struct kern_vec *cb_cpu_vec(const struct device *d)
{
    return &((const struct cpu *)d->impl)->vec.vec;
}

/* load.c */
int cb_cpu_load(struct device *d, struct weight *w);
void cb_cpu_unload(struct device *d, struct weight *w);
void cb_cpu_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y);
/* matmul.c */
int64_t cb_cpu_matmul_reserve(struct device *d, int n_tok, int max_in); /* bytes or negative */
int cb_cpu_panels_reserve(struct device *d, const struct weight *w);    /* what w's products need */
void cb_cpu_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok);
void cb_cpu_matmul_sets(struct device *d, const struct mm *mm, int n, const float *x, size_t x_step,
                        size_t x_stride, int n_tok);
void cb_cpu_matmul_rows(struct device *d, const struct mm *mm, const int32_t *rows, int n,
                        const float *x);
void cb_cpu_matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok);

#endif
