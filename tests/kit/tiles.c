/* SPDX-License-Identifier: MIT */
/* tiles.c - the tier amx on machines without AMX, and one whose tiles are refused or wrong. */
#include "tiles.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "cpu/cpuid.h"
#include "cpu/matmul/kern_mm.h"
#define MM_GROUPS 1
#define MM_TILE   4
#include "cpu/matmul/mm_table.h"
#include "cpu/peak/kern_peak.h"

static int shown;
static enum tiles_fault fault;
static _Atomic int n_call;

void cb_tiles_show(int show)
{
    shown = show;
}

int cb_tiles_shown(void)
{
    const char *best = getenv("CTXBANK_TEST_ISA");

    return shown || (best && !strcmp(best, "amx"));
}

void cb_tiles_fail(enum tiles_fault f)
{
    fault = f;
}

int cb_tiles_tried(void)
{
    return n_call;
}

#ifdef HAVE_ISA_AMX
/* The linker sends the library's uses of the tables here (--wrap). */
extern const struct kern_many __real_cb_many_amx, cb_many_model;
extern const struct kern_peak __real_cb_peak_amx, cb_peak_model;
extern struct kern_many __wrap_cb_many_amx;
extern struct kern_peak __wrap_cb_peak_amx;
uint32_t __real_cb_cpu_features(void);
int __real_cb_cpu_permit_tiles(void);
int __wrap_cb_cpu_permit_tiles(void);

struct kern_many __wrap_cb_many_amx;
struct kern_peak __wrap_cb_peak_amx;
static const struct kern_many *sound;

static int is_real(void)
{
    const uint32_t needs = CPU_AMX_TILE | CPU_AMX_INT8;
    const char *want = getenv("CTXBANK_TEST_TILES");

    return !(want && !strcmp(want, "model")) && (__real_cb_cpu_features() & needs) == needs &&
           !__real_cb_cpu_permit_tiles();
}

/* Every 1000th of n results */
static void spoil(float *out, int n)
{
    for (int i = 999 % n; i < n; i += 1000) {
        uint32_t bits;
        memcpy(&bits, out + i, sizeof bits);
        bits ^= 1;
        memcpy(out + i, &bits, sizeof bits);
    }
}

#define MULTIPLY(kind)                                                                             \
    static void multiply_##kind(const void *panel, const void *x, int n_in, int n_tok, float *out) \
    {                                                                                              \
        n_call++;                                                                                  \
        sound->multiply[kind](panel, x, n_in, n_tok, out);                                         \
        if (fault == TILES_WRONG)                                                                  \
            spoil(out, 32 * n_tok);                                                                \
    }
#define BATCH_OF(act16, type)                                                                      \
    static void batch_##act16##_##type(MM_BATCH_ARGS)                                              \
    {                                                                                              \
        n_call++;                                                                                  \
        sound->batch[act16][DT_##type](w, step, n_group, x, n_in, n_tok, out);                     \
        if (fault == TILES_WRONG_BATCH)                                                            \
            spoil(out, MM_ROWS *n_group *n_tok);                                                   \
    }
#define BATCH(type)      BATCH_OF(0, type) BATCH_OF(1, type)
#define BATCH_8(type)    [DT_##type] = batch_0_##type,
#define BATCH_16(type)   [DT_##type] = batch_1_##type,
#define MULTIPLIED(kind) [kind] = multiply_##kind,
MM_KINDS(MULTIPLY)
MM_QUANTS(BATCH)

__attribute__((constructor)) static void choose_tables(void)
{
    static const mm_many all[MM_PANELS] = { MM_KINDS(MULTIPLIED) };
    static const mm_batch batch[2][DT_COUNT] = { { MM_QUANTS(BATCH_8) }, { MM_QUANTS(BATCH_16) } };

    sound = is_real() ? &__real_cb_many_amx : &cb_many_model;
    __wrap_cb_many_amx = *sound;
    memcpy(__wrap_cb_many_amx.multiply, all, sizeof all);
    memcpy(__wrap_cb_many_amx.batch, batch, sizeof batch);
    __wrap_cb_peak_amx = is_real() ? __real_cb_peak_amx : cb_peak_model;
}

int __wrap_cb_cpu_permit_tiles(void)
{
    return fault == TILES_REFUSED ? EPERM : is_real() ? __real_cb_cpu_permit_tiles() : 0;
}
#endif
