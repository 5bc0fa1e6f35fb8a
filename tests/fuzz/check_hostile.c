/* SPDX-License-Identifier: MIT */
/* check_hostile.c - damaged model files: each either opens and runs or fails with one line that
 * names the file; none crashes, takes long or asks for much memory. With the address and
 * undefined-behaviour sanitizers (configure --enable-asan --enable-ubsan) this also sees every
 * stray read and leak. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "ctxbank.h"
#include "kit/recipe.h"
#include "kit/suite.h"
#include "kit/tiny.h"

enum { MAX_MB = 256, MAX_SECONDS = 1, N_FLIPS = 400 };

/* Read by the address sanitizer's run time when there is one: a request for more than this fails,
 * as it does under the limit that limit_memory sets in other builds. */
const char *__asan_default_options(void) __attribute__((visibility("default")));
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=256:allocator_may_return_null=1";
}

static const struct {
    const char *family;
    enum dtype type;
} bases[] = {
    { "llama", DT_F32 },
    { "llama3.1", DT_F16 },
    { "linear", DT_Q4_0 },
    { "qwen2", DT_Q8_0 },
    /* recipes, in f32 */
    { "family-gemma3.json", DT_F32 },
    { "family-granitemoe.json", DT_F32 },
    { "family-gpt-oss.json", DT_F32 },
    { "family-falcon40b.json", DT_F32 },
    { "family-phi3long.json", DT_F32 },
};
enum { N_BASES = sizeof bases / sizeof *bases };

static char path[64];
static struct gguf_bytes good; /* a sound file */
static size_t header_bytes;    /* of it: what lies before the tensors' data */
static int n_opened, n_refused;

/* ---- one file ---- */

/* A process that maps at most MAX_MB more than it does now. The address sanitizer reserves
 * terabytes of address space: where they are, its own limit does this work. */
static void limit_memory(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long long pages = 0;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rlimit r;

    if (!f)
        return;
    if (fscanf(f, "%llu", &pages) == 1 && pages < (1ull << 40) / page) {
        r.rlim_cur = r.rlim_max = pages * page + ((rlim_t)MAX_MB << 20);
        setrlimit(RLIMIT_AS, &r);
    }
    fclose(f);
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int use_session(cb_model *m)
{
    const struct cb_session_params p = { .n_ctx = 32, .type_k = "f32", .type_v = "f32" };
    struct cb_model_info info;
    cb_session *s = NULL;
    int32_t *ids = NULL;
    char piece[16];
    int n = 0, err;

    cb_model_get_info(m, &info);
    err = cb_tokenize(m, "The end\n", 8, CB_TOK_BOS | CB_TOK_SPECIAL, &ids, &n);
    for (int i = 0; !err && i < n; i++)
        cb_token_bytes(m, ids[i], 1, piece, sizeof piece);
    if (!err)
        err = cb_session_open(m, &p, &s);
    if (!err)
        err = cb_session_prefill(s, ids, n, NULL);
    if (!err)
        err = cb_session_decode(s, info.n_vocab - 1);
    cb_session_close(s);
    free(ids);
    return err;
}

static int use_file(void)
{
    const struct cb_model_params p = { .n_threads = 1 };
    cb_model *m;
    int err = cb_model_open(path, &p, &m);

    if (!err) {
        err = use_session(m);
        cb_model_close(m);
    }
    return err;
}

/* What was done to the file is in `what` and `i`, for the message. */
static void try_file(const void *bytes, size_t n, const char *what, uint64_t i)
{
    const double t0 = cpu_seconds();
    const char *e;
    int err;

    unlink(path); /* some file systems wait for the disk when a file is overwritten */
    cb_write_file(path, bytes, n);
    cb_fail(0, "(nothing)");
    err = use_file();
    e = cb_error();
    ck_assert_msg(cpu_seconds() - t0 < MAX_SECONDS, "%s %llu: takes %.1f s", what,
                  (unsigned long long)i, cpu_seconds() - t0);
    n_opened += !err;
    n_refused += err != 0;
    if (!err)
        return;
    ck_assert_msg(err < 0 && err != CB_ENOMEM && strstr(e, path) && !strchr(e, '\n'),
                  "%s %llu: status %d, \"%s\"", what, (unsigned long long)i, err, e);
}

/* ---- where things are in the sound file ---- */

static void make_tiny(int i, struct gguf_make *m)
{
    struct tiny t = cb_tiny_small(bases[i].family);

    t.type = bases[i].type;
    t.n_layer = 1;
    cb_tiny_make(&t, m);
}

static void make_recipe(int i, struct gguf_make *m)
{
    struct recipe r;

    cb_recipe_open(&r, bases[i].family);
    cb_recipe_make(&r, m);
    cb_recipe_close(&r);
}

static void make_base(int i)
{
    struct gguf_make m;

    if (strstr(bases[i].family, ".json"))
        make_recipe(i, &m);
    else
        make_tiny(i, &m);
    good = cb_make_bytes(&m);
    header_bytes = good.n - m.data.n;
    cb_make_free(&m);
    snprintf(path, sizeof path, "check_hostile.%d.tmp", (int)getpid());
    limit_memory();
}

static void drop_base(const char *name)
{
    if (getenv("VERBOSE"))
        fprintf(stderr, "%s: %d opened, %d refused\n", name, n_opened, n_refused);
    free(good.p);
    unlink(path);
}

/* The sound file mapped, to ask where its fields are. */
static struct gguf *look(void)
{
    struct gguf *g;

    cb_write_file(path, good.p, good.n);
    ck_assert_int_eq(cb_gguf_open(path, &g), 0);
    return g;
}

/* The place of p, which points into g's mapping: the first key stands behind magic, version, two
 * counts and its length. */
static size_t at(const struct gguf *g, const void *p)
{
    return (size_t)((const char *)p - cb_gguf_kv_at(g, 0)->key.s) + 4 + 4 + 8 + 8 + 8;
}

static const uint64_t numbers[] = {
    0,          1,          2,          3,          7,          64,         255,
    INT32_MAX,  1u << 31,   UINT32_MAX, 0x7fc00000, 0x7f800000, 0xff800000, 0x80000000,
    0x00000001, 1ull << 32, 1ull << 62, INT64_MAX,  1ull << 63, UINT64_MAX, UINT64_MAX - 31,
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

/* Each number in turn in the `size` bytes at `place`. */
static void put_numbers(size_t place, size_t size, const char *what)
{
    unsigned char *p = malloc(good.n);

    memcpy(p, good.p, good.n);
    for (int i = 0; i < N_NUMBERS; i++) {
        memcpy(p + place, &numbers[i], size);
        try_file(p, good.n, what, numbers[i]);
    }
    free(p);
}

static void put_bytes(size_t place, const void *bytes, size_t n, const char *what, uint64_t i)
{
    unsigned char *p = malloc(good.n);

    memcpy(p, good.p, good.n);
    memcpy(p + place, bytes, n);
    try_file(p, good.n, what, i);
    free(p);
}

/* ---- the corpus; _i: the base ---- */

/* The guard of all tests here works: what is too much is refused. */
START_TEST(limited_memory)
{
    void *volatile p;

    limit_memory();
    p = malloc((size_t)MAX_MB << 20 | 1);
    ck_assert_ptr_null(p);
    free(p);
}
END_TEST

START_TEST(sound)
{
    make_base(_i);
    try_file(good.p, good.n, "sound", 0);
    ck_assert_msg(n_opened == 1, "%s", cb_error());
    drop_base("sound");
}
END_TEST

START_TEST(truncated)
{
    make_base(_i);
    for (size_t n = 1; n < header_bytes; n += n < 128 ? 1 : 61)
        try_file(good.p, n, "cut at", n);
    for (size_t n = header_bytes - 64; n < header_bytes + 64; n++)
        try_file(good.p, n, "cut at", n);
    for (size_t i = 1; i < 64; i++)
        try_file(good.p, good.n * i / 64, "cut at", good.n * i / 64);
    for (size_t i = 1; i < 40; i++)
        try_file(good.p, good.n - i, "cut at", good.n - i);
    drop_base("truncated");
}
END_TEST

START_TEST(flipped_bits)
{
    unsigned char *p;
    uint64_t rng = 1;

    make_base(_i);
    p = malloc(good.n);
    for (int i = 0; i < cb_test_cases(N_FLIPS); i++) {
        memcpy(p, good.p, good.n);
        for (int n = 1 + i % 4; n; n--) {
            const size_t bytes = i % 8 ? header_bytes : good.n;
            const uint64_t bit = cb_rand_u64(&rng) % (bytes * 8);
            p[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        try_file(p, good.n, "bits, seed", (uint64_t)i);
    }
    free(p);
    drop_base("bits");
}
END_TEST

START_TEST(header_numbers)
{
    make_base(_i);
    put_numbers(0, 4, "magic");
    put_numbers(4, 4, "version");
    put_numbers(8, 8, "number of tensors");
    put_numbers(16, 8, "number of keys");
    put_numbers(24, 8, "length of key 0");
    drop_base("header");
}
END_TEST

/* Each key lost, of another type, of other values; arrays of other lengths. */
START_TEST(metadata)
{
    struct gguf *g;
    const struct gguf_kv *kv;

    make_base(_i);
    g = look();
    for (uint64_t i = 0; (kv = cb_gguf_kv_at(g, i)); i++) {
        const size_t key = at(g, kv->key.s), data = at(g, kv->data), type = key + kv->key.n;

        put_bytes(key, "X", 1, "lost key", i);
        put_bytes(key, "\n\x1b[", 3, "control characters in key", i);
        put_numbers(key - 8, 8, "length of a key");
        for (uint32_t t = 0; t < 14; t++)
            put_bytes(type, &t, 4, "type of a key", t);
        put_numbers(data, kv->elem == GGUF_BOOL ? 1 : 4, "value");
        put_numbers(data, 8, "value or length");
        if (kv->type != GGUF_ARRAY)
            continue;
        for (uint32_t t = 0; t < 14; t++)
            put_bytes(type + 4, &t, 4, "type of elements", t);
        put_numbers(data - 8, 8, "length of an array");
    }
    cb_gguf_close(g);
    drop_base("metadata");
}
END_TEST

/* Each tensor lost, of other dimensions, another type, in another place. */
START_TEST(tensor_infos)
{
    struct gguf *g;
    const struct gguf_tensor *t;

    make_base(_i);
    g = look();
    for (uint64_t i = 0; (t = cb_gguf_tensor_at(g, i)); i++) {
        const size_t name = at(g, t->name.s), dims = name + t->name.n + 4;
        const size_t type = dims + 8 * (size_t)t->n_dim;
        const uint64_t swapped[2] = { (uint64_t)t->dim[1], (uint64_t)t->dim[0] };

        put_bytes(name, "X", 1, "lost tensor", i);
        put_numbers(name - 8, 8, "length of a name");
        put_numbers(dims - 4, 4, "number of dimensions");
        for (int d = 0; d < t->n_dim; d++)
            put_numbers(dims + 8 * (size_t)d, 8, "dimension");
        if (t->n_dim == 2)
            put_bytes(dims, swapped, sizeof swapped, "swapped dimensions", i);
        for (uint32_t k = 0; k < 42; k++)
            put_bytes(type, &k, 4, "type of a tensor", k);
        put_numbers(type + 4, 8, "offset");
        for (uint64_t k = 0; k < good.n; k += good.n / 8 / 32 * 32)
            put_bytes(type + 4, &k, 8, "offset", k);
    }
    cb_gguf_close(g);
    drop_base("tensors");
}
END_TEST

/* Weights of NaN, and such as overflow, are an error; denormals and zeros make answers. */
START_TEST(strange_weights)
{
    static const unsigned char fill[] = { 0xff, 0x7f, 0x80, 0x01, 0x00 };
    unsigned char *p;

    make_base(_i);
    p = malloc(good.n);
    for (size_t i = 0; i < sizeof fill; i++) {
        memcpy(p, good.p, header_bytes);
        memset(p + header_bytes, fill[i], good.n - header_bytes);
        try_file(p, good.n, "weights of", fill[i]);
    }
    ck_assert_int_ge(n_opened, 2); /* divisors of rotation frequencies must be numbers */
    free(p);
    drop_base("weights");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hostile");
    TCase *t = tcase_create("files");

    tcase_set_timeout(t, 300);
    tcase_add_test(t, limited_memory);
    tcase_add_loop_test(t, sound, 0, N_BASES);
    tcase_add_loop_test(t, truncated, 0, N_BASES);
    tcase_add_loop_test(t, flipped_bits, 0, N_BASES);
    tcase_add_loop_test(t, header_numbers, 0, N_BASES);
    tcase_add_loop_test(t, metadata, 0, N_BASES);
    tcase_add_loop_test(t, tensor_infos, 0, N_BASES);
    tcase_add_loop_test(t, strange_weights, 0, N_BASES);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
