/* SPDX-License-Identifier: MIT */
/* check_quantize.c - a model in another type has the same metadata, every weight rounded once, and
 * still runs; a failure leaves no file. */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ctxbank.h"
#include "gguf/gguf_write.h"
#include "gguf/requantize.h"
#include "kit/suite.h"
#include "kit/tiny.h"

static char dir[] = "check_quantize.XXXXXX", in[64], out[64], imatrix[64];

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(in, sizeof in, "%s/in.gguf", dir);
    snprintf(out, sizeof out, "%s/out.gguf", dir);
    snprintf(imatrix, sizeof imatrix, "%s/imatrix", dir);
}

static int n_files(void)
{
    DIR *d = opendir(dir);
    int n = 0;

    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void teardown(void)
{
    unlink(in);
    unlink(out);
    unlink(imatrix);
    ck_assert_int_eq(rmdir(dir), 0);
}

static struct quantize job(enum dtype type)
{
    return (struct quantize){ .in = in, .out = out, .type = type, .n_threads = 2 };
}

static void open_both(struct gguf **a, struct gguf **b)
{
    ck_assert_ok(cb_gguf_open(in, a));
    ck_assert_ok(cb_gguf_open(out, b));
}

/* The rounding of `from`, an f32 tensor, to the type of `to`. */
static void same_rounding(const struct gguf_tensor *from, const struct gguf_tensor *to)
{
    const int64_t n = from->dim[0] * from->dim[1];
    unsigned char *want = malloc(to->size);

    ck_assert_int_eq(from->type, DT_F32);
    ck_assert_uint_eq(to->size, cb_row_bytes(to->type, n));
    cb_dtype[to->type].from_f32(from->data, want, n);
    ck_assert_msg(!memcmp(want, to->data, to->size), "%.*s", (int)to->name.n, to->name.s);
    free(want);
}

static int named(const struct gguf_tensor *t, const char *name)
{
    return t->name.n == strlen(name) && !memcmp(t->name.s, name, t->name.n);
}

START_TEST(every_type)
{
    static const char *const keys[] = { "general.architecture", "llama.block_count",
                                        "tokenizer.ggml.tokens", "tokenizer.ggml.scores" };
    const enum dtype type = (enum dtype)_i;
    struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job(type);
    const struct gguf_tensor *t, *u;
    struct gguf *a, *b;

    tiny.n_layer = 1;
    cb_tiny_save(&tiny, in);
    ck_assert_ok(cb_quantize(&q));
    open_both(&a, &b);
    ck_assert_uint_eq(cb_gguf_file_bytes(b), q.out_bytes);
    ck_assert_uint_eq(cb_gguf_file_bytes(a), q.in_bytes);
    ck_assert_int_eq(q.n_fallback, 0);
    ck_assert_uint_eq(cb_gguf_n_tensor(a), cb_gguf_n_tensor(b));
    for (uint64_t i = 0; (t = cb_gguf_tensor_at(a, i)) && (u = cb_gguf_tensor_at(b, i)); i++) {
        enum dtype want = t->n_dim == 1 ? DT_F32 : type;
        if (named(t, "output.weight") && cb_dtype[type].block > 1 && type != DT_Q8_0)
            want = DT_Q6_K;
        if (named(t, "blk.0.attn_v.weight") && type == DT_Q4_K)
            want = DT_Q5_K;
        ck_assert_int_eq(u->type, want);
        same_rounding(t, u);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct gguf_kv *x = cb_gguf_find(a, keys[i]), *y = cb_gguf_find(b, keys[i]);
        ck_assert(x && y && x->type == y->type && x->n == y->n);
        ck_assert(!memcmp(x->data, y->data, (size_t)x->n));
    }
    cb_gguf_close(a);
    cb_gguf_close(b);
}
END_TEST

START_TEST(it_still_runs)
{
    const int32_t ids[] = { 1, 100, 200, 300 };
    const struct tiny tiny = cb_tiny_get(_i ? "qwen2tied" : "smollm");
    const struct cb_model_params p = { .n_threads = 1 };
    struct cb_model_info info;
    struct quantize q = job(DT_Q4_K);
    cb_model *m;
    cb_session *s;

    cb_tiny_save(&tiny, in);
    ck_assert_ok(cb_quantize(&q));
    ck_assert_ok(cb_model_open(out, &p, &m));
    cb_model_get_info(m, &info);
    ck_assert_str_eq(info.quant, "Q4_K");
    ck_assert_ok(cb_session_open(m, NULL, &s));
    ck_assert_ok(cb_session_prefill(s, ids, 4, NULL));
    ck_assert(isfinite(cb_session_logits(s)[0]));
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Q4_K: the values of 4 layers, and an eighth of the ffn_down, have a bit more. */
START_TEST(first_layers_of_q4_k)
{
    struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job(DT_Q4_K);
    char name[80];
    struct gguf *g;

    tiny.n_layer = 17;
    cb_tiny_save(&tiny, in);
    ck_assert_ok(cb_quantize(&q));
    ck_assert_int_eq(cb_gguf_open(out, &g), 0);
    for (int l = 0; l < 17; l++) {
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", l);
        ck_assert_int_eq(cb_gguf_tensor(g, name)->type, l < 4 ? DT_Q5_K : DT_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", l);
        ck_assert_int_eq(cb_gguf_tensor(g, name)->type, l < 2 ? DT_Q5_K : DT_Q4_K);
        snprintf(name, sizeof name, "blk.%d.attn_k.weight", l);
        ck_assert_int_eq(cb_gguf_tensor(g, name)->type, DT_Q4_K);
    }
    cb_gguf_close(g);
}
END_TEST

struct told {
    int n;
    char first[80];
};

static void note_fallback(void *arg, const char *tensor, int64_t row, enum dtype became)
{
    struct told *t = arg;

    ck_assert(row % 256 && cb_dtype[became].block < 256);
    if (!t->n++)
        snprintf(t->first, sizeof t->first, "%s", tensor);
}

/* Rows of 64 and of 96 are no blocks of 256. */
START_TEST(short_rows_get_a_wider_type)
{
    static const struct {
        enum dtype ask, got;
    } cases[] = { { DT_Q4_K, DT_Q5_0 }, { DT_Q5_K, DT_Q5_1 }, { DT_Q6_K, DT_Q8_0 } };
    const struct tiny tiny = cb_tiny_small("llama");
    struct gguf *g;

    cb_tiny_save(&tiny, in);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct quantize q = job(cases[i].ask);
        struct told told = { 0, "" };
        q.fallback = note_fallback;
        q.fallback_arg = &told;
        ck_assert_ok(cb_quantize(&q));
        ck_assert_int_eq(q.n_fallback, 2 + 2 * 7);
        ck_assert_int_eq(told.n, q.n_fallback);
        ck_assert_str_eq(told.first, "token_embd.weight");
        ck_assert_int_eq(cb_gguf_open(out, &g), 0);
        ck_assert_int_eq(cb_gguf_tensor(g, "blk.1.ffn_down.weight")->type, cases[i].got);
        ck_assert_int_eq(cb_gguf_tensor(g, "output.weight")->type, DT_Q8_0);
        cb_gguf_close(g);
    }
}
END_TEST

START_TEST(the_same_type_is_a_copy)
{
    struct tiny tiny = cb_tiny_small("llama");
    struct quantize q = job(DT_Q8_0);
    const struct gguf_tensor *t, *u;
    struct gguf *a, *b;

    tiny.type = DT_Q8_0;
    cb_tiny_save(&tiny, in);
    ck_assert_ok(cb_quantize(&q));
    ck_assert_int_eq(q.n_requant, 0);
    open_both(&a, &b);
    for (uint64_t i = 0; (t = cb_gguf_tensor_at(a, i)) && (u = cb_gguf_tensor_at(b, i)); i++)
        ck_assert(t->type == u->type && t->size == u->size && !memcmp(t->data, u->data, t->size));
    cb_gguf_close(a);
    cb_gguf_close(b);
}
END_TEST

START_TEST(quantised_input_is_told)
{
    struct tiny tiny = cb_tiny_small("llama");
    struct quantize q = job(DT_Q4_0), f = job(DT_F32);

    tiny.type = DT_Q8_0;
    cb_tiny_save(&tiny, in);
    ck_assert_ok(cb_quantize(&q));
    ck_assert_int_gt(q.n_requant, 0);
    ck_assert_ok(cb_quantize(&f));
    ck_assert_int_eq(f.n_requant, 0);
}
END_TEST

/* ---- importance matrices ---- */

enum { N_IN = 256 };

static float importance(int column)
{
    return column % 16 ? 0.01f : 100;
}

static void add(struct gguf_bytes *b, const void *p, size_t n)
{
    ck_assert_int_eq(cb_gguf_append(b, p, n), 0);
}

static void add_i32(struct gguf_bytes *b, int32_t v)
{
    add(b, &v, sizeof v);
}

/* blk.0.ffn_up.weight in the older form, n columns */
static struct gguf_bytes old_form(int n)
{
    static const char name[] = "blk.0.ffn_up.weight";
    struct gguf_bytes b = { 0 };

    add_i32(&b, 1);
    add_i32(&b, sizeof name - 1);
    add(&b, name, sizeof name - 1);
    add_i32(&b, 7);
    add_i32(&b, n);
    for (int i = 0; i < n; i++) {
        const float v = importance(i);
        add(&b, &v, sizeof v);
    }
    add_i32(&b, 7);
    add_i32(&b, 4);
    add(&b, "text", 4);
    return b;
}

static struct gguf_bytes new_form(float count)
{
    const int64_t columns[] = { N_IN, 1 }, one[] = { 1, 1 };
    struct gguf_bytes b;
    struct gguf_writer w;

    cb_gguf_writer_init(&w);
    cb_gguf_put_string(&w, "general.type", "imatrix");
    cb_gguf_put_tensor(&w, (struct gguf_str){ "blk.0.ffn_up.weight.in_sum2", 27 }, DT_F32, 2,
                       columns);
    cb_gguf_put_tensor(&w, (struct gguf_str){ "blk.0.ffn_up.weight.counts", 26 }, DT_F32, 2, one);
    ck_assert_int_eq(cb_gguf_put_header(&w, &b), 0);
    for (int i = 0; i < N_IN; i++) {
        const float v = importance(i) * count;
        add(&b, &v, sizeof v);
    }
    add(&b, &count, sizeof count);
    add(&b, NULL, 28);
    cb_gguf_writer_free(&w);
    return b;
}

static void save(struct gguf_bytes b, size_t n)
{
    cb_write_file(imatrix, b.p, n);
    free(b.p);
}

/* The error of ffn_up of `out` in the columns that matter (1), or in all */
static double error_of(int some)
{
    struct gguf *a, *b;
    const struct gguf_tensor *t, *u;
    double sum = 0;
    float y[N_IN];

    open_both(&a, &b);
    t = cb_gguf_tensor(a, "blk.0.ffn_up.weight");
    u = cb_gguf_tensor(b, "blk.0.ffn_up.weight");
    ck_assert_int_eq(t->dim[0], N_IN);
    for (int64_t r = 0; r < t->dim[1]; r++) {
        const float *x = (const float *)t->data + r * N_IN;
        cb_dtype[u->type].to_f32((const char *)u->data + (size_t)r * cb_row_bytes(u->type, N_IN), y,
                                 N_IN);
        for (int i = 0; i < N_IN; i++)
            if (!some || importance(i) > 1)
                sum += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
    }
    cb_gguf_close(a);
    cb_gguf_close(b);
    return sum;
}

/* Both forms say the same, and errors move to where they count less. */
START_TEST(errors_go_where_they_matter_least)
{
    static const enum dtype types[] = { DT_Q4_0, DT_Q5_0, DT_Q4_K, DT_Q5_K, DT_Q6_K };
    const struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job(types[_i]);
    double some, all;

    cb_tiny_save(&tiny, in);
    ck_assert_ok(cb_quantize(&q));
    some = error_of(1);
    all = error_of(0);
    q.imatrix = imatrix;
    for (int form = 0; form < 2; form++) {
        const struct gguf_bytes b = form ? new_form(3) : old_form(N_IN);
        save(b, b.n);
        ck_assert_ok(cb_quantize(&q));
        ck_assert_int_eq(q.n_weighted, 1);
        ck_assert_msg(error_of(1) < 0.8 * some, "%g, without %g", error_of(1), some);
        ck_assert_msg(error_of(0) > all, "%g, without %g", error_of(0), all);
    }
}
END_TEST

/* Nothing is known of experts that no token chose. */
START_TEST(a_count_of_0_says_nothing)
{
    const struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job(DT_Q4_K);
    struct gguf_bytes b = new_form(0);
    double before;

    cb_tiny_save(&tiny, in);
    ck_assert_ok(cb_quantize(&q));
    before = error_of(1);
    save(b, b.n);
    q.imatrix = imatrix;
    ck_assert_ok(cb_quantize(&q));
    ck_assert_msg(error_of(1) > 0.9 * before, "%g, without %g", error_of(1), before);
}
END_TEST

START_TEST(bad_importance_matrices)
{
    const struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job(DT_Q4_K);
    struct gguf_bytes b = old_form(N_IN);
    const size_t end = b.n - 12; /* what follows the entries may be missing */

    cb_tiny_save(&tiny, in);
    q.imatrix = imatrix;
    free(b.p);
    for (size_t n = 0; n < end; n += n < 60 ? 1 : 101) {
        b = old_form(N_IN);
        save(b, n);
        ck_assert_int_eq(cb_quantize(&q), CB_EFORMAT);
        ck_assert_ptr_nonnull(strstr(cb_error(), imatrix));
    }
    b = old_form(N_IN);
    save(b, end);
    ck_assert_ok(cb_quantize(&q));
    b = old_form(N_IN / 2);
    save(b, b.n);
    ck_assert_int_eq(cb_quantize(&q), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), "128 columns, the model 256"));
    b = old_form(N_IN);
    b.p[8] = 'x'; /* of another model */
    save(b, b.n);
    ck_assert_int_eq(cb_quantize(&q), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), "no matrix of this model"));
    b = new_form(-1);
    save(b, b.n);
    ck_assert_int_eq(cb_quantize(&q), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), "negative"));
    cb_write_file(imatrix, in, strlen(in));
    ck_assert_int_eq(cb_quantize(&q), CB_EFORMAT);
    q.imatrix = in; /* a model */
    ck_assert_int_eq(cb_quantize(&q), CB_EFORMAT);
}
END_TEST

/* ---- failures ---- */

static void nothing_is_left(struct quantize *q, int status, const char *text)
{
    ck_assert_int_eq(cb_quantize(q), status);
    ck_assert_msg(strstr(cb_error(), text) != NULL, "%s", cb_error());
    ck_assert_int_eq(n_files(), 1);
}

START_TEST(no_room)
{
    const struct tiny tiny = cb_tiny_get("llama");
    const struct rlimit r = { 500000, 500000 };
    struct quantize q = job(DT_F16);

    cb_tiny_save(&tiny, in);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &r), 0);
    nothing_is_left(&q, CB_EIO, out);
}
END_TEST

static int stop_half_way(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    return 2 * done > total;
}

START_TEST(stopped)
{
    const struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job(DT_F16);

    cb_tiny_save(&tiny, in);
    q.progress = stop_half_way;
    nothing_is_left(&q, CB_ECANCEL, out);
}
END_TEST

START_TEST(strange_weights)
{
    const struct tiny tiny = cb_tiny_small("llama");
    static const char *const why[] = { "infinite or not a number", "infinite or not a number",
                                       "too large for F16", "too large for Q4_0" };
    const float bad[] = { NAN, INFINITY, 70000, 1e6f };
    struct quantize q = job(DT_F16);
    struct gguf *g;
    size_t at;

    cb_tiny_save(&tiny, in);
    ck_assert_int_eq(cb_gguf_open(in, &g), 0);
    at = (size_t)((const char *)cb_gguf_tensor(g, "blk.1.ffn_up.weight")->data -
                  cb_gguf_kv_at(g, 0)->key.s) +
         32;
    cb_gguf_close(g);
    for (int i = 3; i >= 0; i--) {
        FILE *f = fopen(in, "r+b");
        ck_assert(!fseek(f, (long)at + 400, SEEK_SET) && fwrite(&bad[i], 4, 1, f) == 1);
        fclose(f);
        q.type = i == 3 ? DT_Q4_0 : DT_F16;
        nothing_is_left(&q, CB_EFORMAT, "tensor blk.1.ffn_up.weight: a weight is ");
        ck_assert_msg(strstr(cb_error(), why[i]) != NULL, "%s", cb_error());
        q.type = DT_Q4_0;
        if (i == 2) /* 70000 */
            ck_assert_ok(cb_quantize(&q));
        unlink(out);
    }
}
END_TEST

START_TEST(bad_targets)
{
    const struct tiny tiny = cb_tiny_small("llama");
    struct quantize q = job(DT_F16);

    cb_tiny_save(&tiny, in);
    q.out = in;
    nothing_is_left(&q, CB_EARG, "same file");
    q.out = dir;
    nothing_is_left(&q, CB_EARG, "not a regular file");
    q.out = "nowhere/at/all";
    nothing_is_left(&q, CB_EIO, "nowhere/at/all: ");
    q.in = "nowhere";
    nothing_is_left(&q, CB_EIO, "nowhere");
}
END_TEST

START_TEST(an_old_file_outlives_a_failure)
{
    const struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job(DT_F16);
    char text[8] = "";
    FILE *f;

    cb_tiny_save(&tiny, in);
    cb_write_file(out, "old", 3);
    q.progress = stop_half_way;
    ck_assert_int_eq(cb_quantize(&q), CB_ECANCEL);
    ck_assert_int_eq(n_files(), 2);
    f = fopen(out, "rb");
    ck_assert_uint_eq(fread(text, 1, sizeof text, f), 3);
    ck_assert_str_eq(text, "old");
    fclose(f);
}
END_TEST

START_TEST(a_type_that_is_only_read)
{
    const struct tiny tiny = cb_tiny_get("llama");
    struct quantize q = job((enum dtype)_i);

    cb_tiny_save(&tiny, in);
    ck_assert_int_eq(cb_quantize(&q), CB_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(cb_error(), cb_dtype[_i].name));
    ck_assert_int_ne(access(out, F_OK), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quantize");
    TCase *t = tcase_create("types"), *bad = tcase_create("failures");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_type, 0, DT_ENCODED);
    tcase_add_loop_test(t, errors_go_where_they_matter_least, 0, 5);
    tcase_add_test(t, a_count_of_0_says_nothing);
    tcase_add_test(t, bad_importance_matrices);
    tcase_add_loop_test(t, a_type_that_is_only_read, DT_ENCODED, DT_COUNT);
    tcase_add_loop_test(t, it_still_runs, 0, 2);
    tcase_add_test(t, first_layers_of_q4_k);
    tcase_add_test(t, short_rows_get_a_wider_type);
    tcase_add_test(t, the_same_type_is_a_copy);
    tcase_add_test(t, quantised_input_is_told);
    suite_add_tcase(suite, t);
    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_set_timeout(bad, 60);
    tcase_add_test(bad, no_room);
    tcase_add_test(bad, stopped);
    tcase_add_test(bad, strange_weights);
    tcase_add_test(bad, bad_targets);
    tcase_add_test(bad, an_old_file_outlives_a_failure);
    suite_add_tcase(suite, bad);
    return cb_suite_run(suite);
}
