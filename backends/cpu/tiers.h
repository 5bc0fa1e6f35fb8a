/* SPDX-License-Identifier: MIT */
/* tiers.h - tiers of kernels that this machine may use, and what it lacks for the others. */
#ifndef TIERS_H
#define TIERS_H

#include <stddef.h>
#include <stdint.h>

struct device;

/* The tiers that may be used. Finding them tries tiles where the machine has them. */
struct cpu_tiers {
    uint32_t usable; /* cpu_feature bits: the machine's without those that cannot be used */
    char why[128];   /* they cannot, or "" */
};

void cb_cpu_find_tiers(struct cpu_tiers *out);
const struct cpu_tiers *cb_cpu_tiers_of(const struct device *d); /* as found when d was opened */
/* Tiers that are built in and supported by this machine, best first; NULL past the last. */
const char *cb_cpu_isa_at(const struct cpu_tiers *t, int i);
/* The tier above `isa` that is built in, or NULL; missing: the features it needs that this machine
 * lacks, "avx512_vnni, avx512_vbmi" */
const char *cb_cpu_isa_above(const struct cpu_tiers *t, const char *isa, char *missing,
                             size_t size);

#endif
