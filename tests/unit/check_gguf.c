/* SPDX-License-Identifier: MIT */
/* check_gguf.c - metadata and tensors of sound files are read as written; each kind of damage is
 * told with the file and the key or tensor that has it. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "kit/gguf_make.h"
#include "kit/suite.h"
#include "kit/tiny.h"

static char path[64];

static void setup(void)
{
    snprintf(path, sizeof path, "check_gguf.%d.tmp", (int)getpid());
}

static void teardown(void)
{
    unlink(path);
}

static struct gguf *reopen(struct gguf_make *m)
{
    struct gguf *g;

    cb_make_save(m, path);
    ck_assert_ok(cb_gguf_open(path, &g));
    return g;
}

static void expect_str(struct gguf_str s, const char *want)
{
    ck_assert_uint_eq(s.n, strlen(want));
    ck_assert(!memcmp(s.s, want, s.n));
}

/* ---- sound files ---- */

static const struct {
    enum gguf_type type;
    int64_t lo, hi;
} ints[] = {
    { GGUF_U8, 0, UINT8_MAX },   { GGUF_I8, INT8_MIN, INT8_MAX },
    { GGUF_U16, 0, UINT16_MAX }, { GGUF_I16, INT16_MIN, INT16_MAX },
    { GGUF_U32, 0, UINT32_MAX }, { GGUF_I32, INT32_MIN, INT32_MAX },
    { GGUF_U64, 0, INT64_MAX },  { GGUF_I64, INT64_MIN, INT64_MAX },
};
enum { N_INTS = sizeof ints / sizeof *ints };

START_TEST(integers_of_every_type)
{
    struct gguf_make m;
    struct gguf *g;
    char key[32];
    int64_t v;

    cb_make_init(&m);
    m.w.version = (uint32_t)_i;
    for (int i = 0; i < N_INTS; i++) {
        snprintf(key, sizeof key, "lo%d", i);
        cb_gguf_put_i64(&m.w, key, ints[i].type, ints[i].lo);
        snprintf(key, sizeof key, "hi%d", i);
        cb_gguf_put_i64(&m.w, key, ints[i].type, ints[i].hi);
    }
    g = reopen(&m);
    ck_assert_ptr_nonnull(cb_gguf_kv_at(g, 2 * N_INTS - 1));
    ck_assert_ptr_null(cb_gguf_kv_at(g, 2 * N_INTS));
    for (int i = 0; i < N_INTS; i++) {
        snprintf(key, sizeof key, "lo%d", i);
        ck_assert_int_eq(cb_gguf_i64(g, key, &v), 1);
        ck_assert_int_eq(v, ints[i].lo);
        snprintf(key, sizeof key, "hi%d", i);
        ck_assert_int_eq(cb_gguf_i64(g, key, &v), 1);
        ck_assert_int_eq(v, ints[i].hi);
        expect_str(cb_gguf_kv_at(g, 2 * (uint64_t)i + 1)->key, key);
    }
    cb_gguf_close(g);
}
END_TEST

START_TEST(integers_must_fit)
{
    struct gguf_make m;
    struct gguf *g;
    int64_t v = 7;

    cb_make_init(&m);
    cb_gguf_put_i64(&m.w, "wide", GGUF_U64, -1);
    cb_gguf_put_i64(&m.w, "fits", GGUF_U64, INT64_MAX);
    cb_gguf_put_bool(&m.w, "flag", 1);
    g = reopen(&m);
    ck_assert_int_eq(cb_gguf_i64(g, "none", &v), 0);
    ck_assert_int_eq(cb_gguf_i64(g, "wide", &v), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), ": key wide: "));
    ck_assert_int_eq(cb_gguf_i64(g, "flag", &v), CB_EFORMAT);
    ck_assert_int_eq(v, 7);
    ck_assert_int_eq(cb_gguf_i64(g, "fits", &v), 1);
    ck_assert_int_eq(v, INT64_MAX);
    cb_gguf_close(g);
}
END_TEST

START_TEST(other_scalars)
{
    static const double num[] = { 0.1, -1e300 };
    struct gguf_make m;
    struct gguf *g;
    struct gguf_str s;
    float f = 3;
    int b;

    cb_make_init(&m);
    cb_gguf_put_f32(&m.w, "f", 0.25f);
    cb_gguf_put_f32(&m.w, "nan", NAN);
    cb_gguf_put_f32(&m.w, "inf", INFINITY);
    cb_gguf_put_bool(&m.w, "no", 0);
    cb_gguf_put_bool(&m.w, "yes", 1);
    cb_gguf_put_string(&m.w, "s", "text \xc3\xa9");
    cb_gguf_put_string(&m.w, "empty", "");
    cb_gguf_put_array(&m.w, "list", GGUF_F64, num, 2);
    g = reopen(&m);
    ck_assert_int_eq(cb_gguf_f32(g, "nan", &f), CB_EFORMAT);
    ck_assert_int_eq(cb_gguf_f32(g, "inf", &f), CB_EFORMAT);
    ck_assert_int_eq(cb_gguf_f32(g, "s", &f), CB_EFORMAT);
    ck_assert_int_eq(cb_gguf_f32(g, "list", &f), CB_EFORMAT);
    ck_assert_float_eq(f, 3);
    ck_assert_int_eq(cb_gguf_f32(g, "f", &f), 1);
    ck_assert_float_eq(f, 0.25f);
    ck_assert_int_eq(cb_gguf_bool(g, "no", &b), 1);
    ck_assert_int_eq(b, 0);
    ck_assert_int_eq(cb_gguf_bool(g, "yes", &b), 1);
    ck_assert_int_eq(b, 1);
    ck_assert_int_eq(cb_gguf_bool(g, "f", &b), CB_EFORMAT);
    ck_assert_int_eq(cb_gguf_string(g, "s", &s), 1);
    expect_str(s, "text \xc3\xa9");
    ck_assert_int_eq(cb_gguf_string(g, "empty", &s), 1);
    ck_assert_uint_eq(s.n, 0);
    ck_assert_int_eq(cb_gguf_string(g, "f", &s), CB_EFORMAT);
    ck_assert_int_eq(cb_gguf_string(g, "nothing", &s), 0);
    cb_gguf_close(g);
}
END_TEST

START_TEST(arrays)
{
    static const double num[] = { 0.1, -1e300, 3 };
    static const int16_t low[] = { -5, 300 };
    const char *const words[] = { "a", "", "three" };
    const struct gguf_kv *kv;
    struct gguf_make m;
    struct gguf *g;

    cb_make_init(&m);
    cb_gguf_put_array(&m.w, "f64", GGUF_F64, num, 3);
    cb_gguf_put_array(&m.w, "i16", GGUF_I16, low, 2);
    cb_gguf_put_array(&m.w, "none", GGUF_U32, NULL, 0);
    cb_make_strings(&m, "words", words, 3);
    g = reopen(&m);
    ck_assert_int_eq(cb_gguf_array(g, "f64", GGUF_F64, &kv), 1);
    ck_assert_uint_eq(kv->n, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(cb_gguf_array_num(kv, (uint64_t)i), num[i]);
    ck_assert_int_eq(cb_gguf_array(g, "i16", GGUF_I16, &kv), 1);
    ck_assert_double_eq(cb_gguf_array_num(kv, 0), -5);
    ck_assert_double_eq(cb_gguf_array_num(kv, 1), 300);
    ck_assert_int_eq(cb_gguf_array(g, "none", GGUF_U32, &kv), 1);
    ck_assert_uint_eq(kv->n, 0);
    ck_assert_int_eq(cb_gguf_array(g, "none", GGUF_I32, &kv), CB_EFORMAT);
    ck_assert_int_eq(cb_gguf_array(g, "words", GGUF_STRING, &kv), 1);
    for (int i = 0; i < 3; i++)
        expect_str(cb_gguf_array_str(kv, (uint64_t)i), words[i]);
    cb_gguf_close(g);
}
END_TEST

/* The lengths that were checked are the ones that count, whatever the file says by then. */
START_TEST(lengths_are_read_once)
{
    const char *const words[] = { "one", "two" };
    const uint64_t huge = UINT64_MAX / 2;
    const struct gguf_kv *kv;
    struct gguf_make m;
    struct gguf_bytes b;
    struct gguf_str s;
    struct gguf *g;
    int fd;

    cb_make_init(&m);
    cb_gguf_put_string(&m.w, "name", "a name");
    cb_make_strings(&m, "words", words, 2);
    b = cb_make_bytes(&m);
    cb_make_free(&m);
    cb_write_file(path, b.p, b.n);
    ck_assert_int_eq(cb_gguf_open(path, &g), 0);
    ck_assert_int_eq(cb_gguf_array(g, "words", GGUF_STRING, &kv), 1);
    ck_assert_int_eq(cb_gguf_string(g, "name", &s), 1);
    fd = open(path, O_WRONLY);
    for (size_t i = 0; i + 11 <= b.n; i++) /* the length fields of all three */
        if (!memcmp(b.p + i + 8, "a name", 6) || !memcmp(b.p + i + 8, "one", 3) ||
            !memcmp(b.p + i + 8, "two", 3))
            ck_assert_int_eq(pwrite(fd, &huge, sizeof huge, (off_t)i), sizeof huge);
    close(fd);
    expect_str(cb_gguf_array_str(kv, 0), "one");
    expect_str(cb_gguf_array_str(kv, 1), "two");
    ck_assert_int_eq(cb_gguf_string(g, "name", &s), 1);
    expect_str(s, "a name");
    cb_gguf_close(g);
    free(b.p);
}
END_TEST

/* One tensor of each type, at every alignment that a file may choose. */
START_TEST(tensors_of_every_type)
{
    const int64_t dim[4] = { 256, 3, 2, 1 };
    static float x[256 * 6], y[256 * 6];
    const struct gguf_tensor *t;
    struct gguf_make m;
    struct gguf *g;
    uint64_t rng = 5;

    for (int i = 0; i < 256 * 6; i++)
        x[i] = cb_rand_normal(&rng);
    cb_make_init(&m);
    m.w.alignment = (uint32_t)_i;
    cb_gguf_put_i64(&m.w, "general.alignment", GGUF_U32, _i);
    for (int i = 0; i < DT_COUNT; i++)
        cb_make_tensor(&m, cb_dtype[i].name, i, 3, dim, x);
    g = reopen(&m);
    ck_assert_uint_eq(cb_gguf_n_tensor(g), DT_COUNT);
    for (int i = 0; i < DT_COUNT; i++) {
        t = cb_gguf_tensor(g, cb_dtype[i].name);
        ck_assert_ptr_nonnull(t);
        ck_assert_ptr_eq(t, cb_gguf_tensor_at(g, (uint64_t)i));
        ck_assert_int_eq(t->type, i);
        ck_assert_int_eq(t->n_dim, 3);
        ck_assert(!memcmp(t->dim, dim, sizeof dim));
        ck_assert_uint_eq(t->size, cb_row_bytes(i, 256) * 6);
        ck_assert_uint_eq((uintptr_t)t->data % (uintptr_t)_i, 0);
        cb_dtype[i].to_f32(t->data, y, 256 * 6);
        for (int j = 0; j < 256 * 6 && i < DT_ENCODED; j++)
            ck_assert_float_eq_tol(x[j], y[j], 0.5f);
    }
    ck_assert_ptr_null(cb_gguf_tensor(g, "Q4_"));
    ck_assert_ptr_null(cb_gguf_tensor_at(g, DT_COUNT));
    cb_gguf_close(g);
}
END_TEST

START_TEST(released_pages_can_be_read_again)
{
    const struct tiny tiny = cb_tiny_get("llama");
    const struct gguf_tensor *t;
    struct gguf *g;
    unsigned char *copy;

    cb_tiny_save(&tiny, path);
    ck_assert_int_eq(cb_gguf_open(path, &g), 0);
    for (uint64_t i = 0; (t = cb_gguf_tensor_at(g, i)); i++) {
        copy = malloc(t->size);
        memcpy(copy, t->data, t->size);
        cb_gguf_release_pages(g, t->data, t->size);
        ck_assert(!memcmp(copy, t->data, t->size));
        free(copy);
    }
    cb_gguf_close(g);
}
END_TEST

/* ---- split models ---- */

enum { PARTS = 3 };

static const char *part_path(int i)
{
    static char both[2][80]; /* two calls can be arguments of one */
    static int turn;
    char *p = both[turn ^= 1];

    snprintf(p, sizeof both[0], "check_gguf.%d-%05d-of-%05d.gguf", (int)getpid(), i + 1, PARTS);
    return p;
}

/* Part i of a model: every third tensor, and the metadata if it is the first */
static void save_part(const struct gguf *g, int i, int count, int no)
{
    const struct gguf_tensor *t;
    const struct gguf_kv *kv;
    struct gguf_make m;

    cb_make_init(&m);
    for (uint64_t k = 0; i == 0 && (kv = cb_gguf_kv_at(g, k)); k++)
        cb_gguf_put_copy(&m.w, kv);
    cb_gguf_put_i64(&m.w, "split.no", GGUF_U16, no);
    cb_gguf_put_i64(&m.w, "split.count", GGUF_U16, count);
    cb_gguf_put_i64(&m.w, "split.tensors.count", GGUF_I32, (int64_t)cb_gguf_n_tensor(g));
    for (uint64_t k = (uint64_t)i; (t = cb_gguf_tensor_at(g, k)); k += PARTS) {
        char name[65];
        float *x = malloc(t->size);
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
        memcpy(x, t->data, t->size);
        cb_make_tensor(&m, name, t->type, t->n_dim, t->dim, x);
        free(x);
    }
    cb_make_save(&m, part_path(i));
}

static struct gguf *tiny_file(void)
{
    const struct tiny tiny = cb_tiny_small("llama"); /* f32 */
    struct gguf *g;

    cb_tiny_save(&tiny, path);
    ck_assert_int_eq(cb_gguf_open(path, &g), 0);
    return g;
}

static void refused(int part, const char *why)
{
    struct gguf *g;

    ck_assert_int_lt(cb_gguf_open(part_path(part), &g), 0);
    ck_assert_msg(strstr(cb_error(), why) != NULL, "%s", cb_error());
}

START_TEST(split_models)
{
    struct gguf *g = tiny_file(), *h;
    const struct gguf_tensor *t, *u;
    char name[65];

    for (int i = 0; i < PARTS; i++)
        save_part(g, i, PARTS, i);
    ck_assert_ok(cb_gguf_open(part_path(0), &h));
    ck_assert_uint_eq(cb_gguf_n_tensor(h), cb_gguf_n_tensor(g));
    for (uint64_t i = 0; (t = cb_gguf_tensor_at(g, i)); i++) {
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
        u = cb_gguf_tensor(h, name);
        ck_assert_ptr_nonnull(u);
        cb_gguf_release_pages(h, u->data, u->size);
        ck_assert_uint_eq(u->size, t->size);
        ck_assert_mem_eq(u->data, t->data, t->size);
    }
    cb_gguf_close(h);
    refused(1, "open the first");
    save_part(g, 2, PARTS, 1);
    refused(0, "is not part 3 of 3");
    save_part(g, 2, PARTS + 1, 2);
    refused(0, "is not part 3 of 3");
    save_part(g, 1, PARTS, 2); /* tensors of part 2 in part 3 */
    ck_assert(!rename(part_path(1), part_path(2)));
    save_part(g, 1, PARTS, 1);
    refused(0, "occurs twice");
    unlink(part_path(2));
    refused(0, part_path(2));
    save_part(g, 0, PARTS + 1, 0);
    refused(0, "the name must end in");
    for (int i = 0; i < PARTS; i++)
        unlink(part_path(i));
    cb_gguf_close(g);
}
END_TEST

/* Metadata that is copied from one file to another is the same. */
START_TEST(copied_metadata)
{
    const struct tiny tiny = cb_tiny_small(_i ? "llama" : "qwen2");
    struct gguf_make m;
    struct gguf *g, *h;
    uint64_t n = 0;

    cb_tiny_save(&tiny, path);
    ck_assert_int_eq(cb_gguf_open(path, &g), 0);
    cb_make_init(&m);
    for (uint64_t i = 0; cb_gguf_kv_at(g, i); i++, n++)
        cb_gguf_put_copy(&m.w, cb_gguf_kv_at(g, i));
    unlink(path);
    h = reopen(&m);
    ck_assert_ptr_null(cb_gguf_kv_at(h, n));
    for (uint64_t i = 0; i < n; i++) {
        const struct gguf_kv *a = cb_gguf_kv_at(g, i), *b = cb_gguf_kv_at(h, i);
        ck_assert_int_eq(a->type, b->type);
        ck_assert_int_eq(a->elem, b->elem);
        ck_assert_uint_eq(a->n, b->n);
        ck_assert(!memcmp(a->data, b->data, (size_t)a->n));
    }
    cb_gguf_close(g);
    cb_gguf_close(h);
}
END_TEST

/* ---- damaged files ---- */

/* m: magic; I: u32; Q: u64; S: string with its length; Z: n zeros; P: pads to n bytes */
static void pack(struct gguf_bytes *b, const char *fmt, va_list ap)
{
    const char *s;
    uint32_t u;
    uint64_t q;

    for (; *fmt; fmt++) {
        switch (*fmt) {
        case 'm':
            cb_gguf_append(b, "GGUF", 4);
            break;
        case 'I':
            u = va_arg(ap, uint32_t);
            cb_gguf_append(b, &u, sizeof u);
            break;
        case 'Q':
            q = va_arg(ap, uint64_t);
            cb_gguf_append(b, &q, sizeof q);
            break;
        case 'S':
            s = va_arg(ap, const char *);
            q = strlen(s);
            cb_gguf_append(b, &q, sizeof q);
            cb_gguf_append(b, s, (size_t)q);
            break;
        case 'Z':
            cb_gguf_append(b, NULL, (size_t)va_arg(ap, int));
            break;
        case 'P':
            q = va_arg(ap, uint64_t);
            cb_gguf_append(b, NULL, (size_t)((q - b->n % q) % q));
            break;
        default:
            abort();
        }
    }
}

/* Opening a file of these fields fails with "PATH: ... text ..." */
static void refuse(int status, const char *text, const char *fmt, ...)
{
    struct gguf_bytes b = { .p = NULL };
    struct gguf *g;
    va_list ap;

    va_start(ap, fmt);
    pack(&b, fmt, ap);
    va_end(ap);
    cb_write_file(path, b.p, b.n);
    free(b.p);
    cb_fail(0, "nothing");
    ck_assert_int_eq(cb_gguf_open(path, &g), status);
    ck_assert_ptr_null(g);
    ck_assert_msg(!strncmp(cb_error(), path, strlen(path)) && strstr(cb_error(), text),
                  "'%s', expected '%s'", cb_error(), text);
}

#define U(x) ((uint64_t)(x))

START_TEST(bad_headers)
{
    refuse(CB_EFORMAT, "is not a GGUF file", "I", 1u);
    refuse(CB_EFORMAT, "is not a GGUF file", "IIQQ", 0x4c4d4747u, 3u, U(0), U(0));
    refuse(CB_EFORMAT, "is not a GGUF file", "Z", 2);
    refuse(CB_EFORMAT, "header", "m");
    refuse(CB_EFORMAT, "header", "mIQ", 3u, U(0));
    refuse(CB_EUNSUPPORTED, "version 1", "mIQQ", 1u, U(0), U(0));
    refuse(CB_EUNSUPPORTED, "version 4", "mIQQ", 4u, U(0), U(0));
    refuse(CB_EUNSUPPORTED, "version 0", "mIQQ", 0u, U(0), U(0));
    refuse(CB_EUNSUPPORTED, "big-endian", "mIQQ", 3u << 24, U(0), U(0));
    refuse(CB_EFORMAT, "ends at key 0 of", "mIQQ", 3u, U(0), UINT64_MAX);
    refuse(CB_EFORMAT, "ends at tensor 0 of", "mIQQ", 3u, UINT64_MAX, U(0));
}
END_TEST

START_TEST(bad_keys)
{
    refuse(CB_EFORMAT, "ends at key 1 of 2", "mIQQSII", 3u, U(0), U(2), "a", GGUF_U32, 1u);
    refuse(CB_EFORMAT, "ends at key 0", "mIQQQZ", 3u, U(0), U(1), UINT64_MAX, 9);
    refuse(CB_EFORMAT, "name of 0 bytes", "mIQQSII", 3u, U(0), U(1), "", GGUF_U32, 1u);
    refuse(CB_EFORMAT, "name of 70000 bytes", "mIQQQZ", 3u, U(0), U(1), U(70000), 80000);
    refuse(CB_EFORMAT, "key a: the file ends", "mIQQS", 3u, U(0), U(1), "a");
    refuse(CB_EFORMAT, "key a: the file ends", "mIQQSI", 3u, U(0), U(1), "a", GGUF_U64);
    refuse(CB_EFORMAT, "key a: unknown type 13", "mIQQSIQ", 3u, U(0), U(1), "a", 13u, U(1));
    refuse(CB_EFORMAT, "key a?b: the file ends", "mIQQSI", 3u, U(0), U(1), "a\nb", GGUF_U64);
    refuse(CB_EFORMAT, "key a: a truth value", "mIQQSII", 3u, U(0), U(1), "a", GGUF_BOOL, 2u);
    refuse(CB_EFORMAT, "key a: occurs twice", "mIQQSIISISSII", 3u, U(0), U(3), "a", GGUF_U32, 1u,
           "b", GGUF_STRING, "c", "a", GGUF_I32, 1u);
    refuse(CB_EFORMAT, "key s: the file ends", "mIQQSIQ", 3u, U(0), U(1), "s", GGUF_STRING, U(1));
}
END_TEST

START_TEST(bad_arrays)
{
    refuse(CB_EFORMAT, "key a: the file ends", "mIQQSII", 3u, U(0), U(1), "a", GGUF_ARRAY,
           GGUF_U32);
    refuse(CB_EFORMAT, "key a: the file ends", "mIQQSIIQI", 3u, U(0), U(1), "a", GGUF_ARRAY,
           GGUF_U32, U(2), 1u);
    /* 2^62 elements of 4 bytes are 2^64: the product must not wrap to 0 */
    refuse(CB_EFORMAT, "key a: the file ends", "mIQQSIIQI", 3u, U(0), U(1), "a", GGUF_ARRAY,
           GGUF_U32, U(1) << 62, 1u);
    refuse(CB_EFORMAT, "key a: the file ends", "mIQQSIIQZ", 3u, U(0), U(1), "a", GGUF_ARRAY,
           GGUF_STRING, UINT64_MAX, 100);
    refuse(CB_EUNSUPPORTED, "key a: arrays of arrays", "mIQQSIIQ", 3u, U(0), U(1), "a", GGUF_ARRAY,
           GGUF_ARRAY, U(0));
    refuse(CB_EFORMAT, "key a: unknown type 77", "mIQQSIIQ", 3u, U(0), U(1), "a", GGUF_ARRAY, 77u,
           U(0));
    refuse(CB_EFORMAT, "key a: a truth value", "mIQQSIIQI", 3u, U(0), U(1), "a", GGUF_ARRAY,
           GGUF_BOOL, U(4), 0x03000000u);
}
END_TEST

START_TEST(bad_alignment)
{
    static const uint32_t bad[] = { 0, 1, 4, 24, 33, 0x80000001u };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse(CB_EFORMAT, "key general.alignment: ", "mIQQSII", 3u, U(0), U(1),
               "general.alignment", GGUF_U32, bad[i]);
    refuse(CB_EFORMAT, "key general.alignment: ", "mIQQSIQ", 3u, U(0), U(1), "general.alignment",
           GGUF_U64, U(1) << 33);
    refuse(CB_EFORMAT, "key general.alignment: ", "mIQQSIS", 3u, U(0), U(1), "general.alignment",
           GGUF_STRING, "32");
}
END_TEST

enum { F32 = 0, Q4_0 = 2, Q8_1 = 9, Q4_K = 12 }; /* as numbered in the file */

START_TEST(bad_tensors)
{
    refuse(CB_EFORMAT, "ends at tensor 0 of 1", "mIQQQ", 3u, U(1), U(0), U(50));
    refuse(CB_EFORMAT, "name of 0 bytes", "mIQQSZ", 3u, U(1), U(0), "", 99);
    refuse(CB_EFORMAT, "tensor t: the file ends", "mIQQS", 3u, U(1), U(0), "t");
    refuse(CB_EFORMAT, "tensor t: the file ends", "mIQQSIQ", 3u, U(1), U(0), "t", 2u, U(1));
    refuse(CB_EFORMAT, "tensor t: the file ends", "mIQQSIQI", 3u, U(1), U(0), "t", 1u, U(1), F32);
    refuse(CB_EFORMAT, "tensor t: has not 1 to 4", "mIQQSIZ", 3u, U(1), U(0), "t", 0u, 99);
    refuse(CB_EFORMAT, "tensor t: has not 1 to 4", "mIQQSIZ", 3u, U(1), U(0), "t", 5u, 99);
    refuse(CB_EFORMAT, "tensor t: a dimension is 0", "mIQQSIQQIQZ", 3u, U(1), U(0), "t", 2u, U(4),
           U(0), F32, U(0), 99);
    refuse(CB_EFORMAT, "tensor t: has more elements", "mIQQSIQQIQZ", 3u, U(1), U(0), "t", 2u,
           U(1) << 32, U(1) << 32, F32, U(0), 99);
    refuse(CB_EFORMAT, "tensor t: has more elements", "mIQQSIQIQZ", 3u, U(1), U(0), "t", 1u,
           UINT64_MAX, F32, U(0), 99);
    refuse(CB_EUNSUPPORTED, "tensor t: type Q8_1", "mIQQSIQIQZ", 3u, U(1), U(0), "t", 1u, U(32),
           Q8_1, U(0), 99);
    refuse(CB_EUNSUPPORTED, "tensor t: type NVFP4 (40) is not supported", "mIQQSIQIQZ", 3u, U(1),
           U(0), "t", 1u, U(64), 40u, U(0), 99);
    refuse(CB_EUNSUPPORTED, "(99) is not supported", "mIQQSIQIQZ", 3u, U(1), U(0), "t", 1u, U(32),
           99u, U(0), 99);
    refuse(CB_EFORMAT, "tensor t: rows of 33", "mIQQSIQIQZ", 3u, U(1), U(0), "t", 1u, U(33), Q4_0,
           U(0), 99);
    refuse(CB_EFORMAT, "tensor t: rows of 32", "mIQQSIQQIQZ", 3u, U(1), U(0), "t", 2u, U(32), U(8),
           Q4_K, U(0), 999);
}
END_TEST

START_TEST(bad_places)
{
    refuse(CB_EFORMAT, "tensor t: its data is not aligned", "mIQQSIQIQPZ", 3u, U(1), U(0), "t", 1u,
           U(8), F32, U(16), U(32), 99);
    refuse(CB_EFORMAT, "tensor t: its data goes beyond", "mIQQSIQIQPZ", 3u, U(1), U(0), "t", 1u,
           U(8), F32, U(0), U(32), 31);
    refuse(CB_EFORMAT, "tensor t: its data goes beyond", "mIQQSIQIQ", 3u, U(1), U(0), "t", 1u, U(8),
           F32, U(0));
    refuse(CB_EFORMAT, "tensor t: its data goes beyond", "mIQQSIQIQPZ", 3u, U(1), U(0), "t", 1u,
           U(8), F32, UINT64_MAX - 31, U(32), 99);
    refuse(CB_EFORMAT, "tensor t: occurs twice", "mIQQSIQIQSIQIQPZ", 3u, U(2), U(0), "t", 1u, U(8),
           F32, U(0), "t", 1u, U(8), F32, U(32), U(32), 99);
    refuse(CB_EFORMAT, "tensor u: its data overlaps", "mIQQSIQIQSIQIQPZ", 3u, U(2), U(0), "t", 1u,
           U(9), F32, U(0), "u", 1u, U(8), F32, U(32), U(32), 99);
    refuse(CB_EFORMAT, "its data overlaps", "mIQQSIQIQSIQIQPZ", 3u, U(2), U(0), "t", 1u, U(8), F32,
           U(32), "u", 1u, U(8), F32, U(32), U(32), 99);
}
END_TEST

START_TEST(no_files)
{
    struct gguf *g;

    ck_assert_int_eq(cb_gguf_open(path, &g), CB_EIO);
    ck_assert_ptr_nonnull(strstr(cb_error(), "No such file"));
    refuse(CB_EFORMAT, "is empty", "");
    ck_assert_int_eq(chmod(path, 0), 0);
    if (geteuid())
        ck_assert_int_eq(cb_gguf_open(path, &g), CB_EIO);
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(cb_gguf_open(path, &g), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), "not a regular file"));
    ck_assert_int_eq(cb_gguf_open(".", &g), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), "directory"));
    ck_assert_int_eq(cb_gguf_open("/dev/null", &g), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), "not a regular file"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf");
    TCase *sound = tcase_create("sound files"), *bad = tcase_create("damaged files");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_add_checked_fixture(sound, setup, teardown);
    tcase_add_loop_test(sound, integers_of_every_type, 2, 4);
    tcase_add_test(sound, integers_must_fit);
    tcase_add_test(sound, other_scalars);
    tcase_add_test(sound, arrays);
    tcase_add_test(sound, lengths_are_read_once);
    for (int i = 8; i <= 4096; i *= 2)
        tcase_add_loop_test(sound, tensors_of_every_type, i, i + 1);
    tcase_add_test(sound, released_pages_can_be_read_again);
    tcase_add_loop_test(sound, copied_metadata, 0, 2);
    suite_add_tcase(s, sound);

    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_add_test(bad, bad_headers);
    tcase_add_test(bad, bad_keys);
    tcase_add_test(bad, bad_arrays);
    tcase_add_test(bad, bad_alignment);
    tcase_add_test(bad, bad_tensors);
    tcase_add_test(bad, bad_places);
    tcase_add_test(bad, split_models);
    tcase_add_test(bad, no_files);
    suite_add_tcase(s, bad);

    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
