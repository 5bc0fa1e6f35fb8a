/* SPDX-License-Identifier: MIT */
/* run_ops.c - runs the measurements of single ops for every ISA and every matrix library. */
#include "run_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cpu/matmul/provider.h"
#include "par/cpus.h"

enum { DEVICE_COLD_BYTES = 128 << 20 }; /* an H200 has 60 MiB of cache */

static int limits(struct op_bench *b)
{
    TRY(cb_device_limits(b->d, b->limit));
    for (int l = 0; cb_op_picked(b, KIND_OP, "limit") && l < LIMIT_COUNT; l++) {
        struct op_row row = { .op = "limit", .threads = l == LIMIT_READ_1, .s = 1 };

        if (b->limit[l] <= 0)
            continue;
        if (l == LIMIT_LAUNCH)
            row.s = 1 / b->limit[l];
        else
            *(cb_limit_is_bytes((enum limit)l) ? &row.bytes : &row.flop) = b->limit[l];
        snprintf(row.shape, sizeof row.shape, "%s", cb_limit_name[l]);
        TRY(cb_op_emit(b, &row));
    }
    return CB_OK;
}

static int run(struct op_bench *b)
{
    TRY(cb_bench_matmul(b));
    TRY(cb_bench_attn(b));
    TRY(cb_bench_gather(b));
    TRY(cb_bench_search(b));
    TRY(cb_bench_index(b));
    TRY(cb_bench_recurrence(b));
    return cb_bench_small(b);
}

static int run_with(struct op_bench *b, const char *isa, const char *matmul)
{
    const struct device_want want = { .isa = isa, .matmul = matmul };
    int err;

    if (!cb_op_picked(b, KIND_ISA, isa) || !cb_op_picked(b, KIND_MATMUL, matmul))
        return CB_OK;
    TRY(cb_device_open_team("cpu", b->team, &want, &b->d));
    b->matmul = matmul;
    err = b->limit_of == isa ? CB_OK : limits(b);
    b->limit_of = isa;
    if (!err)
        err = strcmp(matmul, "own") ? cb_bench_matmul(b) : run(b);
    cb_device_close(b->d);
    return err;
}

static int run_device(struct op_bench *b, const char *name, const struct device_want *want)
{
    int err;

    TRY(cb_device_open_team(name, b->team, want, &b->d));
    b->matmul = "own";
    b->cold_bytes = DEVICE_COLD_BYTES;
    err = cb_op_picked(b, KIND_ISA, b->d->isa) ? limits(b) : CB_OK;
    if (!err && cb_op_picked(b, KIND_ISA, b->d->isa))
        err = run(b);
    cb_device_close(b->d);
    return err;
}

int cb_bench_ops(const struct op_pick *pick, const struct team_params *team, const char *name,
                 const struct device_want *want, op_emit emit, void *arg)
{
    struct op_bench b = { .pick = pick, .team = team, .emit = emit, .arg = arg };
    const char *isa, *lib;

    TRY(cb_op_pick_check(pick));
    if (strcmp(name, "cpu"))
        return run_device(&b, name, want);
    b.cold_bytes = cb_cpus_cold_bytes("/sys/devices/system/cpu", 8);
    for (int i = 0; (isa = cb_cpu_isa_at(pick->tiers, i)); i++) {
        TRY(run_with(&b, isa, "own"));
        for (int p = 0; i == 0 && (lib = cb_provider_at(p)); p++)
            TRY(run_with(&b, isa, lib));
    }
    return CB_OK;
}
