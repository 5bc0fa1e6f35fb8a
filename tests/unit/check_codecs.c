/* SPDX-License-Identifier: MIT */
/* check_codecs.c - blocks of weights and of KIVI against other programs: what they decode to, and
 * the same bytes for the same numbers. The vectors are made by make_codecs.py and make_kivi.py. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bank/store.h"
#include "bank/store_kivi.h"
#include "bank/store_rows.h"
#include "device/kivi.h"
#include "gguf/dtype.h"
#include "kit/inside.h"
#include "kit/suite.h"
#include "vectors/codecs.h"
#include "vectors/kivi_published.h"

enum {
    N_DECODED = sizeof codec_decoded / sizeof *codec_decoded,
    N_ENCODED = sizeof codec_encoded / sizeof *codec_encoded,
    N_KIVI = sizeof codec_kivi / sizeof *codec_kivi,
    N_PUBLISHED = sizeof kivi_published / sizeof *kivi_published
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

/* As numbers() in make_kivi.py. */
static float *kivi_numbers(void)
{
    float *x = malloc((size_t)KIVI_T * KIVI_D * sizeof *x);
    uint32_t state = 7;

    for (int i = 0; i < KIVI_T * KIVI_D; i++) {
        const float size = (float)(1 << (i / KIVI_D * 5 + i % KIVI_D * 3) % 11);
        state = (1103515245u * state + 12345u) & 0x7fffffffu;
        x[i] = cb_f16_to_f32(cb_f32_to_f16(((float)(int32_t)(state >> 15) / 32768.0f - 1) * size));
    }
    return x;
}

/* A bank holds what KIVI's published program makes of the same keys and values: grouped along the
 * same axis, which is the tokens' for keys and the channels' for values. */
START_TEST(kivi_groups_as_published)
{
    const int v = kivi_published[_i].values, bits = kivi_published[_i].bits;
    const struct kivi_form form = { bits, KIVI_T, kivi_published[_i].group, 0 };
    float *x = kivi_numbers(), y[KIVI_D];
    struct device *d;
    struct store s;

    ck_assert(!cb_device_open("ref", 1, &d));
    ck_assert(!cb_store_open(&s, 1, KIVI_D, 2 * KIVI_T, KV_F16, KV_F16, 0));
    ck_assert(!cb_kivi_open(&s, form, form));
    for (int i = 0; i < 2; i++) /* of values the newest KIVI_T stay */
        ck_assert(!cb_store_append(&s, d, x, x, KIVI_D, KIVI_T, i * KIVI_T));
    ck_assert(!cb_kivi_advance(&s, d));
    for (int i = 0; i < KIVI_SAMPLE; i++) {
        const int tok = kivi_published[_i].sample[i].tok, dim = kivi_published[_i].sample[i].dim;
        float want;
        floats(&want, &kivi_published[_i].sample[i].x, 1);
        ck_assert(cb_kivi_has(&s, 0, v, tok));
        cb_store_get(&s, d, 0, v, tok, y);
        ck_assert_msg(fabsf(y[dim] - want) <= 1e-6f * 1024,
                      "%s of %d bits, groups of %d: token %d [%d] is %g, not %g",
                      v ? "values" : "keys", bits, form.group, tok, dim, (double)y[dim],
                      (double)want);
    }
    cb_store_close(&s);
    cb_device_close(d);
    free(x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codecs");
    TCase *t = tcase_create("all");

    tcase_add_loop_test(t, every_type_is_decoded, 0, DT_COUNT);
    tcase_add_loop_test(t, the_same_bytes_are_encoded, 0, N_ENCODED);
    tcase_add_loop_test(t, kivi_rounds_as_the_formula, 0, N_KIVI);
    tcase_add_loop_test(t, kivi_groups_as_published, 0, N_PUBLISHED);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
