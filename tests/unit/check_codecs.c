/* SPDX-License-Identifier: MIT */
/* check_codecs.c - blocks of weights and of KIVI against other programs: what they decode to, and
 * the same bytes for the same numbers. The vectors are made by make_codecs.py. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device/kivi.h"
#include "gguf/dtype.h"
#include "kit/suite.h"
#include "vectors/codecs.h"

enum {
    N_DECODED = sizeof codec_decoded / sizeof *codec_decoded,
    N_ENCODED = sizeof codec_encoded / sizeof *codec_encoded,
    N_KIVI = sizeof codec_kivi / sizeof *codec_kivi
};

static int type_of(const char *name)
{
    for (int t = 0; t < DT_COUNT; t++)
        if (!strcmp(cb_dtype[t].name, name))
            return t;
    return -1;
}

static void floats(float *x, const uint32_t *bits, int n)
{
    memcpy(x, bits, (size_t)n * sizeof *x);
}

/* The other program may multiply in another order: the last bits. */
static void near(const char *what, const float *got, const float *want, int n, float tol)
{
    float most = 0;

    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf(want[i]));
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabsf(got[i] - want[i]) <= tol * most, "%s: [%d] is %.9g, not %.9g", what, i,
                      (double)got[i], (double)want[i]);
}

START_TEST(every_type_is_decoded)
{
    const int t = _i;
    float want[CODEC_N], got[CODEC_N];
    int i = 0;

    while (i < N_DECODED && strcmp(codec_decoded[i].type, cb_dtype[t].name))
        i++;
    ck_assert_msg(i < N_DECODED, "%s: no vector", cb_dtype[t].name);
    floats(want, codec_decoded[i].value, CODEC_N);
    cb_dtype[t].to_f32(codec_decoded[i].block, got, CODEC_N);
    near(cb_dtype[t].name, got, want, CODEC_N, t <= DT_BF16 ? 0 : 2e-7f);
}
END_TEST

START_TEST(the_same_bytes_are_encoded)
{
    const int t = type_of(codec_encoded[_i].type);
    const size_t bytes = cb_row_bytes((enum dtype)t, CODEC_N);
    uint8_t got[CODEC_N * sizeof(float)];
    float x[CODEC_N];

    floats(x, codec_row, CODEC_N);
    cb_dtype[t].from_f32(x, got, CODEC_N);
    for (size_t i = 0; i < bytes; i++)
        ck_assert_msg(got[i] == codec_encoded[_i].block[i], "%s: byte %zu of %zu is %d, not %d",
                      cb_dtype[t].name, i, bytes, got[i], codec_encoded[_i].block[i]);
}
END_TEST

START_TEST(kivi_rounds_as_the_formula)
{
    const int bits = codec_kivi[_i].bits;
    float x[KIVI_GROUP], want[KIVI_GROUP], got[KIVI_GROUP];
    uint8_t block[4 + 4 * 4];

    floats(x, codec_kivi[_i].x, KIVI_GROUP);
    floats(want, codec_kivi[_i].value, KIVI_GROUP);
    cb_kivi_encode(bits, KIVI_GROUP, x, 1, block);
    for (int i = 0; i < KIVI_GROUP; i++)
        got[i] = cb_kivi_decode(bits, block, i);
    near("block", got, want, KIVI_GROUP, 2e-7f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codecs");
    TCase *t = tcase_create("all");

    tcase_add_loop_test(t, every_type_is_decoded, 0, DT_COUNT);
    tcase_add_loop_test(t, the_same_bytes_are_encoded, 0, N_ENCODED);
    tcase_add_loop_test(t, kivi_rounds_as_the_formula, 0, N_KIVI);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
