/* SPDX-License-Identifier: MIT */
/* isa.c - the CPU device on each instruction set, machines that lack some of them, and
 * accelerators. */
#include "isa.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/kern.h"
#include "par/affinity.h"
#include "suite.h"
#include "tiles.h"

const char *const cb_isa[CB_ISA_CUDA + 1] = {
    [ISA_SCALAR] = "scalar",
#ifdef HAVE_ISA_AVX2
    [ISA_AVX2] = "avx2",
#endif
#ifdef HAVE_ISA_AVXVNNI
    [ISA_AVXVNNI] = "avxvnni",
#endif
#ifdef HAVE_ISA_AVX512
    [ISA_AVX512BW] = "avx512bw",
#endif
#ifdef HAVE_ISA_AVX512VNNI
    [ISA_AVX512VNNI] = "avx512vnni",
#endif
#ifdef HAVE_ISA_AVX512VBMI
    [ISA_AVX512VBMI] = "avx512vbmi",
#endif
#ifdef HAVE_ISA_NEON
    [ISA_NEON] = "neon",
#endif
#ifdef HAVE_ISA_I8MM
    [ISA_I8MM] = "i8mm",
#endif
#ifdef HAVE_ISA_BF16
    [ISA_BF16] = "bf16",
#endif
#ifdef HAVE_ISA_AMX
    [ISA_AMX] = "amx",
#endif
    [CB_ISA_OPENCL] = "opencl",
    [CB_ISA_CUDA] = "cuda",
};

uint32_t __real_cb_cpu_features(void);
uint32_t __wrap_cb_cpu_features(void);

/* The linker sends the library's calls here (--wrap). CTXBANK_TEST_ISA names the best tier that a
 * test sees: the machine has the features that this one needs, and no others. With
 * CTXBANK_TEST_EVEX, AVX-VNNI is there where the same instructions of AVX-512 are (local.mk). */
uint32_t __wrap_cb_cpu_features(void)
{
    const uint32_t evex = CPU_AVX512VL | CPU_AVX512_VNNI;
    const uint32_t beside_tiles = evex | CPU_AVX512_VBMI;
    const char *best = getenv("CTXBANK_TEST_ISA");
    const struct cpu_kern *k = best && *best ? cb_cpu_choose(UINT32_MAX, best) : NULL;
    uint32_t all = __real_cb_cpu_features();

    if (getenv("CTXBANK_TEST_EVEX") && (all & evex) == evex)
        all |= CPU_AVX_VNNI;
    if (cb_tiles_shown() && (all & beside_tiles) == beside_tiles)
        all |= CPU_AMX_TILE | CPU_AMX_INT8;
    return best && *best ? all & (k ? k->needs : 0) : all;
}

struct device *cb_isa_open(int isa, int threads)
{
    return cb_isa_open_with(isa, threads, NULL);
}

struct device *cb_isa_open_or_skip(int isa, int threads)
{
    struct device *d = cb_isa_open(isa, threads);

    if (!d)
        cb_skip("%s: not on this machine", cb_isa[isa]);
    return d;
}

struct device *cb_isa_open_with(int isa, int threads, const char *matmul)
{
    const int own = isa >= (int)CB_ISA_OPENCL, tiles = !own && !strcmp(cb_isa[isa], "amx");
    const struct device_want want = { .isa = own ? NULL : cb_isa[isa], .matmul = matmul };
    const struct team_params team = { .n_threads = threads };
    struct device *d = NULL;

    cb_tiles_show(tiles);
    if (cb_device_open_team(own ? cb_isa[isa] : "cpu", &team, &want, &d))
        d = NULL;
    cb_tiles_show(0);
    if (d)
        ck_assert_str_eq(d->isa, cb_isa[isa]);
    return d;
}

static int available(const char *name)
{
    const struct backend *b;
    const char *why;

    for (int i = 0; (b = cb_backend_at(i)); i++)
        if (!strcmp(b->name, name))
            return b->available(&why);
    return 0;
}

/* A child asks: a driver makes threads when it is asked, and the children in which tests run would
 * not have them. */
int cb_isa_has_device(const char *name)
{
    const pid_t child = fork();
    int status = 1;

    if (!child)
        _exit(!available(name));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 0;
    return WIFEXITED(status) && !WEXITSTATUS(status);
}
