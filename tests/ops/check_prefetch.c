/* SPDX-License-Identifier: MIT */
/* check_prefetch.c - which processors prefetch late, and the kernel that they get instead. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cpu/cpuid.h"
#include "cpu/kern.h"
#include "cpu/matmul/kern_mm.h"
#include "kit/suite.h"
#include "par/affinity.h"

/* Makers' names as EBX, EDX, ECX of leaf 0 */
static const uint32_t amd[] = { 0x68747541, 0x69746e65, 0x444d4163 };
static const uint32_t intel[] = { 0x756e6547, 0x49656e69, 0x6c65746e };
static const struct {
    const char *name;
    uint32_t leaf1_a;
    const uint32_t *leaf0;
    int late;
} maker[] = {
    { "Zen 4", 0x00a10f11, amd, 0 },
    { "Zen 5", 0x00b00f21, amd, 1 },
    { "Sapphire Rapids", 0x000806f8, intel, 0 },
    { "Zen 5's number of another maker", 0x00b00f21, intel, 0 },
};

START_TEST(families_become_habits)
{
    ck_assert_msg(cb_cpuid_prefetches_late(maker[_i].leaf1_a, maker[_i].leaf0) == maker[_i].late,
                  "%s", maker[_i].name);
}
END_TEST

/* A prefetch changes no bit. */
START_TEST(lines_ahead)
{
    enum { MOST = 2080 };
    static const int widths[] = { 32, 96, 256, 288, MOST };
    const size_t step = mm_rec_bytes(2);
    const struct cpu_kern *k;

    for (int i = 0; (k = cb_cpu_kern_at(i)); i++) {
        if (!k->mm->q8_all_lines || !cb_cpu_choose(cb_cpu_features(), k->name))
            continue;
        for (size_t j = 0; j < sizeof widths / sizeof *widths; j++) {
            const size_t bytes = cb_mm_group_bytes(DT_Q8_0, widths[j]);
            uint8_t *group = cb_alloc_aligned(bytes, 1), *rec = cb_alloc_aligned(MOST / 32, step);
            float x[MOST], out[16], all[16];

            for (size_t b = 0; b < bytes; b++)
                group[b] = (uint8_t)(b * 37 % 60); /* no scale is infinite */
            for (int c = 0; c < MOST; c++)
                x[c] = (float)(c * 29 % 64 - 31) / 7;
            k->mm->quantize_act16(x, widths[j], rec, step);
            k->mm->act16[DT_Q8_0](group, rec, widths[j], out);
            k->mm->q8_all_lines(group, rec, widths[j], all);
            ck_assert_msg(!memcmp(out, all, sizeof out), "%s, %d columns", k->name, widths[j]);
            ck_assert(out[3] != 0 && isfinite(out[3]));
            free(group), free(rec);
        }
    }
}
END_TEST

/* A device takes that kernel where the processor wants it and the tier has it. */
START_TEST(device)
{
    const struct team_params team = { .n_threads = 1 };
    struct device *d;

    ck_assert_int_eq(cb_device_open_team("cpu", &team, NULL, &d), 0);
    ck_assert_int_eq(((const struct cpu *)d->impl)->all_lines,
                     cb_cpu_prefetches_late() && cb_cpu_kern(d)->mm->q8_all_lines);
    cb_device_close(d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prefetch");
    TCase *t = tcase_create("all");

    tcase_add_loop_test(t, families_become_habits, 0, sizeof maker / sizeof *maker);
    tcase_add_test(t, lines_ahead);
    tcase_add_test(t, device);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
