/* SPDX-License-Identifier: MIT */
/* check_tiers.c - which kernels a machine gets. Features are injected, so that each tier's choice
 * is seen on any machine. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "cpu/kern.h"
#include "cpu/matmul/kern_mm.h"
#include "cpu/peak/kern_peak.h"
#include "cpu/tiers.h"
#include "ctxbank.h"
#include "device/prepacked.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiles.h"
#include "par/affinity.h"

enum {
    HASWELL = CPU_AVX2 | CPU_FMA | CPU_F16C,
    ALDER_LAKE = HASWELL | CPU_AVX_VNNI,
    SKYLAKE_SP = HASWELL | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL,
    CASCADE_LAKE = SKYLAKE_SP | CPU_AVX512_VNNI,
    COOPER_LAKE = CASCADE_LAKE | CPU_AVX512_BF16,
    ICE_LAKE = CASCADE_LAKE | CPU_AVX512_VBMI,
    ZEN_4 = ICE_LAKE | CPU_AVX512_BF16,
    SAPPHIRE_RAPIDS = ZEN_4 | CPU_AVX_VNNI | CPU_AMX_TILE | CPU_AMX_INT8 | CPU_AMX_BF16,
    CANNON_LAKE = SKYLAKE_SP | CPU_AVX512_VBMI,
    KNIGHTS_LANDING = HASWELL | CPU_AVX512F
};

struct processor {
    const char *name;
    uint32_t features;
    const char *isa;
};

#if defined __x86_64__ && defined HAVE_ISA_AMX && defined HAVE_ISA_AVXVNNI
static const struct processor machines[] = {
    { "no vectors", 0, "scalar" },
    { "AVX2 without FMA", CPU_AVX2 | CPU_F16C, "scalar" },
    { "Haswell", HASWELL, "avx2" },
    { "Alder Lake", ALDER_LAKE, "avxvnni" },
    { "Knights Landing", KNIGHTS_LANDING, "avx2" },
    { "Skylake-SP", SKYLAKE_SP, "avx512bw" },
    { "Cannon Lake", CANNON_LAKE, "avx512bw" },
    { "Cascade Lake", CASCADE_LAKE, "avx512vnni" },
    { "Cooper Lake", COOPER_LAKE, "avx512vnni" },
    { "Ice Lake", ICE_LAKE, "avx512vbmi" },
    { "Zen 4", ZEN_4, "avx512vbmi" },
    { "a virtual Zen 4 without BF16", ZEN_4 & ~CPU_AVX512_BF16, "avx512vbmi" },
    { "a virtual Sapphire Rapids without AMX", ZEN_4 | CPU_AVX_VNNI, "avx512vbmi" },
    { "Sapphire Rapids", SAPPHIRE_RAPIDS, "amx" },
    { "tiles of bf16 alone", SAPPHIRE_RAPIDS & ~CPU_AMX_INT8, "avx512vbmi" },
    { "a Sapphire Rapids whose tiles may not be used", SAPPHIRE_RAPIDS & ~CPU_AMX_TILE,
      "avx512vbmi" },
    { "a virtual Alder Lake without FMA", ALDER_LAKE & ~CPU_FMA, "scalar" },
};

/* The tables of each tier: the best that its features allow */
static const struct cpu_kern tier[] = {
    { "amx", NULL, ICE_LAKE | CPU_AMX_TILE | CPU_AMX_INT8, &cb_mm_avx512vnni, &cb_vec_avx512,
      &cb_dots_avx512vnni, &cb_kivi_dots_avx512vbmi, &cb_peak_amx, &cb_many_amx },
    { "avx512vbmi", "avx512", ICE_LAKE, &cb_mm_avx512vnni, &cb_vec_avx512, &cb_dots_avx512vnni,
      &cb_kivi_dots_avx512vbmi, &cb_peak_avx512vnni, NULL },
    { "avx512vnni", "avx512", CASCADE_LAKE, &cb_mm_avx512vnni, &cb_vec_avx512, &cb_dots_avx512vnni,
      NULL, &cb_peak_avx512vnni, NULL },
    { "avx512bw", "avx512", SKYLAKE_SP, &cb_mm_avx512, &cb_vec_avx512, &cb_dots_avx512, NULL,
      &cb_peak_avx512, NULL },
    { "avxvnni", NULL, ALDER_LAKE, &cb_mm_avxvnni, &cb_vec_avx2, &cb_dots_avxvnni, NULL,
      &cb_peak_avxvnni, NULL },
    { "avx2", NULL, HASWELL, &cb_mm_avx2, &cb_vec_avx2, &cb_dots_avx2, NULL, &cb_peak_avx2, NULL },
    { "scalar", NULL, 0, &cb_mm_scalar, &cb_vec_scalar, &cb_dots_scalar, NULL, &cb_peak_scalar,
      NULL },
};
#elif defined __aarch64__ && defined HAVE_ISA_BF16
static const struct processor machines[] = {
    { "Cortex-A53", 0, "scalar" },
    { "Graviton 2", CPU_DOTPROD, "neon" },
    { "i8mm without bf16", CPU_DOTPROD | CPU_I8MM, "i8mm" },
    { "bf16 without i8mm", CPU_DOTPROD | CPU_BF16, "neon" },
    { "Graviton 3", CPU_DOTPROD | CPU_I8MM | CPU_BF16, "bf16" },
};
static const struct cpu_kern tier[] = {
    { "bf16", NULL, CPU_DOTPROD | CPU_I8MM | CPU_BF16, &cb_mm_bf16, &cb_vec_neon, &cb_dots_neon,
      NULL, &cb_peak_bf16, NULL },
    { "i8mm", NULL, CPU_DOTPROD | CPU_I8MM, &cb_mm_i8mm, &cb_vec_neon, &cb_dots_neon, NULL,
      &cb_peak_i8mm, NULL },
    { "neon", NULL, CPU_DOTPROD, &cb_mm_neon, &cb_vec_neon, &cb_dots_neon, NULL, &cb_peak_neon,
      NULL },
    { "scalar", NULL, 0, &cb_mm_scalar, &cb_vec_scalar, &cb_dots_scalar, NULL, &cb_peak_scalar,
      NULL },
};
#else /* a compiler that builds fewer tiers */
static const struct processor machines[] = { { "no vectors", 0, "scalar" } };
static const struct cpu_kern tier[] = {
    { "scalar", NULL, 0, &cb_mm_scalar, &cb_vec_scalar, &cb_dots_scalar, NULL, &cb_peak_scalar,
      NULL },
};
#endif
enum { N_MACHINE = sizeof machines / sizeof *machines, N_TIER = sizeof tier / sizeof *tier };

START_TEST(machines_get_the_best_tier)
{
    const struct processor *m = &machines[_i];

    ck_assert_msg(!strcmp(cb_cpu_choose(m->features, NULL)->name, m->isa), "%s runs %s, not %s",
                  m->name, cb_cpu_choose(m->features, NULL)->name, m->isa);
}
END_TEST

/* Keys a panel of prepacked blocks of f16: those of the lowest tier with the same registers */
static int prepacked_panel(const struct cpu_kern *k)
{
    const struct cpu_kern *lowest = k, *o;

    for (int i = 0; (o = cb_cpu_kern_at(i)); i++)
        lowest = o->vec == k->vec ? o : lowest;
    return cb_prepacked_panel(lowest->name);
}

START_TEST(tiers_have_these_kernels)
{
    const struct cpu_kern *want = &tier[_i], *k = cb_cpu_choose(want->needs, want->name);
    struct cpu_vec v;

    ck_assert_str_eq(k->name, want->name);
    ck_assert_ptr_eq(k->mm, want->mm);
    ck_assert_ptr_eq(k->vec, want->vec);
    ck_assert_ptr_eq(k->dots, want->dots);
    ck_assert_ptr_eq(k->kivi, want->kivi);
    ck_assert_ptr_eq(k->peak, want->peak);
    ck_assert_ptr_eq(k->many, want->many);
    ck_assert_uint_eq(k->needs, want->needs);
    cb_cpu_compose(k, &v);
    ck_assert_ptr_eq(v.vec.attn, &v.attn);
    ck_assert_ptr_eq(v.vec.kivi, &v.kivi);
    ck_assert_ptr_eq(v.vec.sketch, k->dots->sketch);
    ck_assert_ptr_nonnull(v.vec.sketch);
    ck_assert(v.vec.rope == k->vec->rope && v.attn.pv == k->vec->attn->pv);
    ck_assert_ptr_eq(v.attn.qk[KV_F16], k->vec->attn->qk[KV_F16]);
    ck_assert_ptr_eq(v.attn.qk[KV_Q8_0],
                     k->dots->qk_q8 ? k->dots->qk_q8 : k->vec->attn->qk[KV_Q8_0]);
    ck_assert_ptr_eq(v.attn.qk_half, k->dots->qk_half);
    ck_assert_ptr_eq(v.attn.prepack[KV_BF16], k->dots->prepack_half);
    ck_assert_ptr_eq(v.attn.prepack[KV_Q8_0], k->dots->prepack_q8);
    ck_assert_ptr_null(v.attn.prepack[KV_F32]);
    ck_assert(v.attn.pv_i16 == k->dots->pv_i16 && v.attn.pack_v_i16 == k->dots->pack_v_i16);
    ck_assert(v.kivi.logits == (k->kivi ? k->kivi->logits : NULL));
    ck_assert(v.kivi.pv == (k->kivi ? k->kivi->pv : NULL));
    ck_assert(v.kivi.group == k->vec->kivi->group);
    ck_assert_int_eq(cb_prepacked_panel(k->name), prepacked_panel(k));
    ck_assert_int_eq(!cb_prepacked_panel(k->name), !k->dots->prepack_half);
}
END_TEST

/* A tier runs where its features are there and nowhere else, whatever others there are. */
START_TEST(features_decide)
{
    const struct cpu_kern *k;

    for (int i = 0; (k = cb_cpu_kern_at(i)); i++) {
        ck_assert_ptr_eq(cb_cpu_choose(k->needs, k->name), k);
        ck_assert_ptr_eq(cb_cpu_choose(UINT32_MAX, k->name), k);
        for (int f = 0; f < CPU_FEATURES; f++)
            if (k->needs >> f & 1)
                ck_assert_msg(!cb_cpu_choose(~(1u << f), k->name), "%s runs without %s", k->name,
                              cb_cpu_feature_name(f));
    }
}
END_TEST

START_TEST(names)
{
    const struct cpu_kern *k;

    ck_assert_ptr_null(cb_cpu_choose(UINT32_MAX, "abacus"));
    ck_assert_ptr_null(cb_cpu_choose(0, "avx2"));
    ck_assert_ptr_null(cb_cpu_choose(HASWELL, "avx512"));
    for (int i = 0; (k = cb_cpu_kern_at(i)); i++)
        if (k->family) {
            ck_assert_str_eq(cb_cpu_choose(k->needs, k->family)->name, k->name);
            ck_assert_ptr_eq(cb_cpu_choose(k->needs | CPU_AVX512_BF16, "avx512"), k);
        }
    for (int f = 0; f < CPU_FEATURES; f++)
        ck_assert_ptr_nonnull(cb_cpu_feature_name(f));
    ck_assert_ptr_null(cb_cpu_feature_name(CPU_FEATURES));
    ck_assert_ptr_null(cb_cpu_feature_name(-1));
}
END_TEST

/* Registers of real processors: ECX of leaf 1; EBX, ECX, EDX of leaf 7, EAX of its subleaf 1 */
static const struct {
    const char *name;
    uint32_t leaf1_c, leaf7[4];
    uint64_t xcr0;
    uint32_t features;
} cpuid[] = {
    { "Haswell", 0x7ffafbff, { 0x000037ab, 0, 0x9c000000, 0 }, 0x7, HASWELL },
    { "Alder Lake",
      0x7ffafbff,
      { 0x239c27eb, 0x98c027ac, 0xfc1cc410, 0x400810 },
      0x207,
      ALDER_LAKE },
    { "Skylake-SP", 0x7ffefbff, { 0xd39ffffb, 0x8, 0xbc000400, 0 }, 0x2ff, SKYLAKE_SP },
    { "Cascade Lake", 0x7ffefbff, { 0xd39ffffb, 0x808, 0xbc000400, 0 }, 0x2ff, CASCADE_LAKE },
    { "Ice Lake", 0x7ffefbff, { 0xf3bfbffb, 0x40417f5e, 0xbc040412, 0 }, 0x2e7, ICE_LAKE },
    { "Zen 4", 0x7efa320b, { 0xf1bf97a9, 0x00405fce, 0x10000010, 0x20 }, 0x2e7, ZEN_4 },
    { "Sapphire Rapids",
      0x7ffefbff,
      { 0xf3bfbffb, 0xfb417ffe, 0xffdd4432, 0x1c30 },
      0x602e7,
      SAPPHIRE_RAPIDS },
    { "a system that saves no tiles",
      0x7ffefbff,
      { 0xf3bfbffb, 0xfb417ffe, 0xffdd4432, 0x1c30 },
      0x2e7,
      ZEN_4 | CPU_AVX_VNNI },
    { "a system that saves no masks",
      0x7ffefbff,
      { 0xf3bfbffb, 0x40417f5e, 0xbc040412, 0 },
      0x7,
      HASWELL },
    { "a system that saves SSE", 0x7ffefbff, { 0xf3bfbffb, 0x40417f5e, 0xbc040412, 0 }, 0x3, 0 },
};

START_TEST(registers_become_features)
{
    const uint32_t got = cb_cpuid_features(cpuid[_i].leaf1_c, cpuid[_i].leaf7, cpuid[_i].xcr0);

    ck_assert_msg(got == cpuid[_i].features, "%s: %#x, not %#x", cpuid[_i].name, got,
                  cpuid[_i].features);
}
END_TEST

/* What `info --cpu` says */
static const char *best_isa(void)
{
    struct cpu_tiers t;

    cb_cpu_find_tiers(&t);
    return cb_cpu_isa_at(&t, 0);
}

/* What the compiler's own detection knows, this one says too. */
START_TEST(this_machine)
{
#ifdef __x86_64__
    const uint32_t have = cb_cpu_features();

    if (getenv("CTXBANK_TEST_ISA"))
        return;
    ck_assert_int_eq(!(have & CPU_AVX2), !__builtin_cpu_supports("avx2"));
    ck_assert_int_eq(!(have & CPU_FMA), !__builtin_cpu_supports("fma"));
    ck_assert_int_eq(!(have & CPU_AVX512F), !__builtin_cpu_supports("avx512f"));
    ck_assert_int_eq(!(have & CPU_AVX512BW), !__builtin_cpu_supports("avx512bw"));
    ck_assert_int_eq(!(have & CPU_AVX512DQ), !__builtin_cpu_supports("avx512dq"));
    ck_assert_int_eq(!(have & CPU_AVX512VL), !__builtin_cpu_supports("avx512vl"));
    ck_assert_int_eq(!(have & CPU_AVX512_VNNI), !__builtin_cpu_supports("avx512vnni"));
    ck_assert_int_eq(!(have & CPU_AVX512_VBMI), !__builtin_cpu_supports("avx512vbmi"));
#endif
    ck_assert_str_eq(best_isa(), cb_cpu_choose(cb_cpu_features(), NULL)->name);
}
END_TEST

/* CTXBANK_TEST_ISA makes a machine of each tier; `info --cpu` says what the next one lacks. */
START_TEST(next_tier)
{
    const struct cpu_kern *k = cb_cpu_kern_at(_i), *above = _i ? cb_cpu_kern_at(_i - 1) : NULL;
    struct cpu_tiers t;
    char missing[256] = "";
    const char *next;

    if (cb_cpu_choose(cb_cpu_features(), k->name)) {
        setenv("CTXBANK_TEST_ISA", k->name, 1);
        ck_assert_str_eq(best_isa(), k->name);
    }
    cb_cpu_find_tiers(&t);
    next = cb_cpu_isa_above(&t, k->name, missing, sizeof missing);
    ck_assert_ptr_eq(next, above ? above->name : NULL);
    for (int f = 0; above && f < CPU_FEATURES; f++)
        if (above->needs & ~cb_cpu_features() & 1u << f)
            ck_assert_msg(strstr(missing, cb_cpu_feature_name(f)) != NULL, "%s: %s", next, missing);
    ck_assert_ptr_null(cb_cpu_isa_above(&t, "abacus", missing, sizeof missing));
}
END_TEST

#ifdef HAVE_ISA_AMX
static char note[256];

static void keep_note(void *arg, enum cb_log_level level, const char *text)
{
    (void)arg;
    ck_assert_int_eq(level, CB_LOG_NOTE);
    snprintf(note, sizeof note, "%s", text);
}

/* A device on a machine with tiles; 0: the machine lacks what else the tier needs */
static int open_with_tiles(const char *isa, enum tiles_fault fault, struct device **d)
{
    const struct device_want want = { .isa = isa, .log = keep_note };

    *note = '\0';
    cb_tiles_show(1);
    cb_tiles_fail(fault);
    *d = NULL;
    if (!cb_cpu_choose(cb_cpu_features(), "amx"))
        return 0;
    if (cb_device_open_team("cpu", &(struct team_params){ .n_threads = 1 }, &want, d))
        *d = NULL;
    return 1;
}

/* Tiles that multiply wrongly, or that the system refuses, are not used: a note, or, if they are
 * asked for, an error. Sound ones are used without a word. */
START_TEST(tiles_are_tried_first)
{
    static const struct {
        enum tiles_fault fault;
        const char *isa, *why;
    } c[] = { { TILES_SOUND, "amx", NULL },
              { TILES_REFUSED, "avx512vbmi", "the system refuses tiles: Operation not permitted" },
              { TILES_WRONG, "avx512vbmi", "by tiles of " },
              { TILES_WRONG_BATCH, "avx512vbmi", "by tiles of " } };
    char missing[256], line[64];
    struct device *d;
    int tried;

    if (!open_with_tiles(NULL, c[_i].fault, &d)) {
        cb_skip("no AVX-512 VNNI and VBMI to put tiles beside");
        return;
    }
    tried = cb_tiles_tried();
    ck_assert_int_eq(tried > 0, c[_i].fault != TILES_REFUSED);
    ck_assert_str_eq(d->isa, c[_i].isa);
    ck_assert_str_eq(cb_cpu_isa_at(cb_cpu_tiers_of(d), 0), c[_i].isa);
    ck_assert_str_eq(cb_cpu_isa_above(cb_cpu_tiers_of(d), "avx512vbmi", missing, sizeof missing),
                     "amx");
    ck_assert_int_eq(cb_tiles_tried(), tried); /* once a device */
    cb_device_close(d);
    snprintf(line, sizeof line, "kernels: avx512vbmi instead of those with tiles: ");
    ck_assert_int_eq(!strncmp(note, line, strlen(line)), c[_i].why != NULL);
    ck_assert_msg(c[_i].why ? strstr(note, c[_i].why) != NULL : !*note, "%s", note);
    ck_assert_msg(c[_i].why ? strstr(missing, "amx_tile, amx_int8 (") && strstr(missing, c[_i].why)
                            : !*missing,
                  "%s", missing);

    ck_assert(open_with_tiles("amx", c[_i].fault, &d));
    ck_assert_int_eq(d != NULL, !c[_i].why);
    ck_assert_msg(d || strstr(cb_error(), c[_i].why), "%s", cb_error());
    ck_assert_str_eq(note, "");
    cb_device_close(d);
    ck_assert(open_with_tiles("avx512vnni", c[_i].fault, &d)); /* other tiers do not care */
    ck_assert_ptr_nonnull(d);
    ck_assert_str_eq(note, "");
    cb_device_close(d);
}
END_TEST

/* What the peak counts is what the instructions do. */
START_TEST(peak_of_tiles)
{
    if (cb_cpu_choose(cb_cpu_features(), "avx512vbmi"))
        ck_assert_int_eq(cb_peak_amx.int8(3), 3LL * 4 * 16 * 16 * 64 * 2);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("tiers");
    TCase *t = tcase_create("all");

    tcase_add_loop_test(t, machines_get_the_best_tier, 0, N_MACHINE);
    tcase_add_loop_test(t, tiers_have_these_kernels, 0, N_TIER);
    tcase_add_test(t, features_decide);
    tcase_add_test(t, names);
    tcase_add_loop_test(t, registers_become_features, 0, sizeof cpuid / sizeof *cpuid);
    tcase_add_test(t, this_machine);
    tcase_add_loop_test(t, next_tier, 0, N_ISA_MM);
#ifdef HAVE_ISA_AMX
    tcase_add_loop_test(t, tiles_are_tried_first, 0, 4);
    tcase_add_test(t, peak_of_tiles);
#endif
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
