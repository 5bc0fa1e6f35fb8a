/* SPDX-License-Identifier: MIT */
/* check_far_memory.c - the boundary to a device with memory of its own, on a device that pretends:
 * its memory cannot be touched outside of ops, rows that kv_encode stores reach the host's memory
 * only at a wait, and attention reads mirrored rows only if the device was told of every change.
 * Texts must be those of the plain device, to the bit. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bank/bank.h"
#include "device/pick.h"
#include "device/sketch.h"
#include "kit/recipe.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { ARENA = 64 << 20, MOST_AREA = 256, MOST_LATE = 4096 };

/* Host memory that the device mirrors. */
struct area {
    const uint8_t *host;
    uint8_t *own;
    size_t row, bytes;
};

/* Rows that are stored, but not yet in the host's memory. */
struct late {
    void *to;
    uint8_t *bytes;
    size_t n;
};

static struct far {
    const struct ops *near; /* the plain device's */
    struct ops ops;
    struct device host; /* the plain device, which cannot touch what is far */
    uint8_t *arena;
    size_t used;
    uint64_t spare;
    int inside; /* ops that run now */
    struct area area[MOST_AREA];
    int n_area;
    struct late late[MOST_LATE];
    int n_late;
    int n_alloc, n_wait, n_wrote, n_ahead;
} far;

static void enter(void)
{
    if (!far.inside++)
        ck_assert(!mprotect(far.arena, ARENA, PROT_READ | PROT_WRITE));
}

static void leave(void)
{
    if (!--far.inside)
        ck_assert(!mprotect(far.arena, ARENA, PROT_NONE));
}

/* ---- memory ---- */

static void *far_alloc(struct device *d, size_t bytes)
{
    void *p = far.arena + far.used;

    (void)d;
    far.used += (bytes + 63) / 64 * 64;
    ck_assert(far.used <= ARENA);
    far.n_alloc++;
    return p;
}

static void far_free(struct device *d, void *p)
{
    (void)d;
    ck_assert((uint8_t *)p >= far.arena && (uint8_t *)p < far.arena + far.used);
    far.n_alloc--;
}

static uint64_t far_spare(const struct device *d)
{
    (void)d;
    return far.spare;
}

static void far_copy(struct device *d, void *to, size_t to_stride, const void *from,
                     size_t from_stride, size_t bytes, int n)
{
    (void)d;
    enter();
    for (int i = 0; i < n; i++)
        memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, bytes);
    leave();
}

static int far_wait(struct device *d)
{
    (void)d;
    for (int i = 0; i < far.n_late; i++) {
        memcpy(far.late[i].to, far.late[i].bytes, far.late[i].n);
        free(far.late[i].bytes);
    }
    far.n_late = 0;
    far.n_wait++;
    return CB_OK;
}

static struct area *area_of(const void *p)
{
    for (int i = 0; i < far.n_area; i++)
        if (far.area[i].host <= (const uint8_t *)p &&
            (const uint8_t *)p < far.area[i].host + far.area[i].bytes)
            return &far.area[i];
    return NULL;
}

static int far_watch(struct device *d, const void *rows, size_t row_bytes, size_t n_row)
{
    (void)d;
    ck_assert(far.n_area < MOST_AREA && !area_of(rows));
    far.area[far.n_area++] =
        (struct area){ rows, calloc(n_row, row_bytes), row_bytes, row_bytes * n_row };
    return CB_OK;
}

static void far_unwatch(struct device *d, const void *rows)
{
    struct area *a = area_of(rows);

    (void)d;
    if (!a)
        return;
    free(a->own);
    *a = far.area[--far.n_area];
}

static void far_wrote(struct device *d, const void *from, size_t bytes)
{
    const struct area *a = area_of(from);

    (void)d;
    ck_assert_msg(!far.n_late, "the host writes rows before it waits");
    if (a && bytes)
        memcpy(a->own + ((const uint8_t *)from - a->host), from, bytes);
    far.n_wrote++;
}

static int is_late(const uint8_t *row)
{
    for (int i = 0; i < far.n_late; i++) {
        const uint8_t *to = far.late[i].to;
        if (row >= to && row < to + far.late[i].n)
            return 1;
    }
    return 0;
}

/* The rows named are those of the host, now. */
static void far_ahead(struct device *d, const struct kv_run *run, int n)
{
    (void)d;
    for (int i = 0; i < n; i++) {
        const struct area *k = area_of(run[i].k), *v = area_of(run[i].v);
        ck_assert(k && v && run[i].idx && !run[i].kivi);
        for (int j = 0; j < run[i].n; j++) {
            const uint8_t *key = (const uint8_t *)run[i].k + (size_t)run[i].idx[j] * k->row;
            const uint8_t *value = (const uint8_t *)run[i].v + (size_t)run[i].idx[j] * v->row;
            ck_assert(!j || run[i].idx[j] > run[i].idx[j - 1]);
            ck_assert(!is_late(key) && !memcmp(key, k->own + (key - k->host), k->row));
            ck_assert(!is_late(value) && !memcmp(value, v->own + (value - v->host), v->row));
            far.n_ahead++;
        }
    }
}

static struct device *far_host(struct device *d)
{
    far.host = *d;
    far.host.ops = far.near;
    return &far.host;
}

static const struct device_memory far_memory = { .alloc = far_alloc,
                                                 .free = far_free,
                                                 .spare = far_spare,
                                                 .copy = far_copy,
                                                 .wait = far_wait,
                                                 .watch = far_watch,
                                                 .unwatch = far_unwatch,
                                                 .wrote = far_wrote,
                                                 .ahead = far_ahead,
                                                 .host = far_host };

/* ---- ops ---- */

#define FAR(call)                                                                                  \
    do {                                                                                           \
        enter();                                                                                   \
        far.near->call;                                                                            \
        leave();                                                                                   \
    } while (0)

static void far_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    FAR(matmul(d, mm, n, x, n_tok));
}

static void far_matmul_sets(struct device *d, const struct mm *mm, int n, const float *x,
                            size_t x_step, size_t x_stride, int n_tok)
{
    FAR(matmul_sets(d, mm, n, x, x_step, x_stride, n_tok));
}

static void far_matmul_rows(struct device *d, const struct mm *mm, const int32_t *rows, int n,
                            const float *x)
{
    FAR(matmul_rows(d, mm, rows, n, x));
}

static void far_matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                           int n_tok)
{
    FAR(matmul_glu(d, mm, act, x, n_tok));
}

static void far_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n,
                         float *y)
{
    FAR(get_rows(d, w, ids, n, y));
}

static void far_rmsnorm(struct device *d, const float *x, const float *w, float eps, int n,
                        int n_row, int n_tok, int x_stride, float *y, int y_stride)
{
    FAR(rmsnorm(d, x, w, eps, n, n_row, n_tok, x_stride, y, y_stride));
}

static void far_layernorm(struct device *d, const float *x, const float *w, const float *b,
                          float eps, int n, int n_row, int n_tok, int x_stride, float *y,
                          int y_stride)
{
    FAR(layernorm(d, x, w, b, eps, n, n_row, n_tok, x_stride, y, y_stride));
}

static void far_glu(struct device *d, enum act_kind act, float *gate, const float *up, int n,
                    int n_tok)
{
    FAR(glu(d, act, gate, up, n, n_tok));
}

static void far_add(struct device *d, float *y, const float *x, float a, size_t n)
{
    FAR(add(d, y, x, a, n));
}

static void far_scale(struct device *d, float *x, float a, float cap, size_t n)
{
    FAR(scale(d, x, a, cap, n));
}

static void far_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok,
                     int n_head, int hd)
{
    FAR(sink(d, out, lse, sink, n_tok, n_head, hd));
}

static void far_rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                     int stride, int n_rot, const float *cs)
{
    FAR(rope(d, kind, x, n_tok, n_head, hd, stride, n_rot, cs));
}

static void far_short_conv(struct device *d, const struct short_conv *c, int n)
{
    FAR(short_conv(d, c, n));
}

static void far_decays(struct device *d, const struct decays *x)
{
    FAR(decays(d, x));
}

static void far_recurrence(struct device *d, const struct recurrence *r, int n)
{
    FAR(recurrence(d, r, n));
}

/* The rows that a run reads of keys (v = 0) or values are the same in the mirror. */
static void same_rows(const struct attn *a, const struct kv_run *run, int v)
{
    const uint8_t *rows = v ? run->v : run->k;
    const size_t bytes = cb_kv_row_bytes(v ? a->type_v : a->type_k, a->hd);
    const struct area *in = area_of(rows);

    for (int j = run->prepacked; in && !run->kivi && j < run->n; j++) {
        const size_t at = (size_t)(rows - in->host) + (size_t)(run->idx ? run->idx[j] : j) * bytes;
        ck_assert_msg(!memcmp(in->own + at, in->host + at, bytes),
                      "the device was not told that the host wrote entry %d of %d", j, run->n);
    }
}

static void same_kivi(const struct kv_kivi *q)
{
    const struct area *k = area_of(q->k), *v = area_of(q->v);

    if (k && q->bits_k && q->n_k && !q->row_k)
        ck_assert_mem_eq(k->own, k->host, k->row * (size_t)(q->n_k / KIVI_GROUP));
    if (v && q->bits_v && q->n_v && !q->row_v)
        ck_assert_mem_eq(v->own, v->host, v->row * (size_t)q->n_v);
}

/* The plain device reads the host's memory, so late rows go there before it runs, and what they
 * replace comes back after it. */
static void swap_late(int back)
{
    for (int k = 0; k < far.n_late; k++) {
        const struct late *l = &far.late[back ? far.n_late - 1 - k : k];
        for (size_t i = 0; i < l->n; i++) {
            const uint8_t x = ((uint8_t *)l->to)[i];
            ((uint8_t *)l->to)[i] = l->bytes[i];
            l->bytes[i] = x;
        }
    }
}

static void same_runs(const struct attn *a)
{
    for (int h = 0; h < a->n_kv; h++) {
        if (!a->run[h].given)
            same_rows(a, &a->run[h], 0);
        same_rows(a, &a->run[h], 1);
        if (a->run[h].kivi)
            same_kivi(a->run[h].kivi);
    }
}

static void far_attention(struct device *d, const struct attn *a, int n)
{
    swap_late(0);
    for (int i = 0; i < n; i++)
        same_runs(&a[i]);
    FAR(attention(d, a, n));
    swap_late(1);
}

static void far_score(struct device *d, const struct score *s)
{
    swap_late(0);
    FAR(score(d, s));
    swap_late(1);
}

static void far_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                     int n_row, int hd)
{
    FAR(join(d, out, lse, out2, lse2, n_row, hd));
}

static void far_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride,
                          int hd, void *rows)
{
    const size_t bytes = cb_kv_row_bytes(t, hd) * (size_t)n;
    struct area *a = area_of(rows);
    uint8_t *coded = malloc(bytes + 1);

    enter();
    far.near->kv_encode(d, t, x, n, stride, hd, coded);
    leave();
    if (!a) {
        memcpy(rows, coded, bytes);
        free(coded);
        return;
    }
    memcpy(a->own + ((uint8_t *)rows - a->host), coded, bytes);
    ck_assert_int_lt(far.n_late, MOST_LATE);
    far.late[far.n_late++] = (struct late){ rows, coded, bytes };
}

/* Several threads may call it at once. */
static void far_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx,
                          int n, int hd, float *y)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&one);
    swap_late(0);
    FAR(kv_decode(d, t, rows, idx, n, hd, y));
    swap_late(1);
    pthread_mutex_unlock(&one);
}

static void far_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                       int bits, int n_out, void *sketch)
{
    const size_t bytes = (size_t)n_block * cb_sketch_bytes(bits, hd);
    struct area *a = area_of(sketch);

    ck_assert_ptr_nonnull(a);
    ck_assert_msg(!far.n_late, "rows are read before they are there");
    FAR(sketch(d, t, rows, n_block, hd, bits, n_out, sketch));
    memcpy(a->own + ((uint8_t *)sketch - a->host), sketch, bytes);
}

static void far_sketch_topk(struct device *d, const struct sketch_topk *s)
{
    for (int h = 0; h < s->n_kv; h++) {
        const uint8_t *at = s->sketch + (size_t)h * s->head_bytes;
        const struct area *a = area_of(at);
        ck_assert_ptr_nonnull(a);
        ck_assert_mem_eq(a->own + (at - a->host), at,
                         (size_t)s->n_block * cb_sketch_bytes(s->bits, s->hd));
    }
    FAR(sketch_topk(d, s));
}

static void far_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page,
                       int hd, void *bounds)
{
    const size_t bytes = (size_t)n_page * cb_bounds_bytes(hd);
    struct area *a = area_of(bounds), *keys = area_of(rows);
    uint8_t *made = malloc(bytes + 1);

    ck_assert_ptr_nonnull(a);
    if (keys) /* the host's may be late */
        rows = keys->own + ((const uint8_t *)rows - keys->host);
    FAR(bounds(d, t, rows, n_page, page, hd, made));
    memcpy(a->own + ((uint8_t *)bounds - a->host), made, bytes);
    if (!far.n_late) { /* the host may have made them */
        memcpy(bounds, made, bytes);
        free(made);
        return;
    }
    ck_assert_int_lt(far.n_late, MOST_LATE);
    far.late[far.n_late++] = (struct late){ bounds, made, bytes };
}

static void far_page_scores(struct device *d, const struct page_scores *s)
{
    swap_late(0);
    for (int h = 0; h < s->n_kv; h++) {
        const uint8_t *at = s->bounds + (size_t)h * s->head_bytes;
        const struct area *a = area_of(at);
        ck_assert_ptr_nonnull(a);
        ck_assert_mem_eq(a->own + (at - a->host), at, (size_t)s->n_page * cb_bounds_bytes(s->hd));
    }
    FAR(page_scores(d, s));
    swap_late(1);
}

/* spare 0: rows of long prompts stay with the host. */
static void make_far(struct device *d, uint64_t spare)
{
    far.spare = spare;
    far.near = d->ops;
    far.ops = *d->ops;
    far.ops.memory = &far_memory;
    far.ops.matmul = far_matmul;
    far.ops.matmul_sets = far_matmul_sets;
    far.ops.matmul_rows = far.near->matmul_rows ? far_matmul_rows : NULL;
    far.ops.matmul_glu = far_matmul_glu;
    far.ops.get_rows = far_get_rows;
    far.ops.rmsnorm = far_rmsnorm;
    far.ops.layernorm = far_layernorm;
    far.ops.glu = far_glu;
    far.ops.add = far_add;
    far.ops.scale = far_scale;
    far.ops.sink = far_sink;
    far.ops.rope = far_rope;
    far.ops.short_conv = far_short_conv;
    far.ops.decays = far_decays;
    far.ops.recurrence = far_recurrence;
    far.ops.attention = far_attention;
    far.ops.score = far_score;
    far.ops.join = far_join;
    far.ops.kv_encode = far_kv_encode;
    far.ops.kv_decode = far_kv_decode;
    far.ops.sketch = far_sketch;
    far.ops.sketch_topk = far_sketch_topk;
    far.ops.bounds = far_bounds;
    far.ops.page_scores = far_page_scores;
    d->ops = &far.ops;
    far.used = 0;
    far.n_area = far.n_late = far.n_alloc = far.n_wait = far.n_wrote = far.n_ahead = 0;
    far.arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(far.arena, MAP_FAILED);
}

/* ---- the same logits ---- */

enum { PROMPT = 150, CUT = 20, ANSWER = 60 };

static struct cb_model *model_of(const char *family)
{
    struct tiny tiny = cb_tiny_small(family);

    tiny.hd = 32; /* all KV types take it */
    return cb_toy_model(&tiny, "cpu", 2);
}

/* Feeds the text in two prompts and single tokens -> the logits after each feed. is_far 0: on the
 * plain device; else there are is_far - 1 bytes to spare */
static float *answer(const char *family, const char *policy, const char *prefill, const char *kv,
                     uint64_t is_far)
{
    struct cb_model *m = model_of(family);
    struct cb_session_params p = {
        .n_ctx = 256, .chunk = 32, .type_k = kv, .type_v = kv, .policy = policy, .prefill = prefill
    };
    const int32_t *text = cb_toy_text(m);
    const size_t n_vocab = (size_t)cb_n_vocab(m);
    float *out = malloc((ANSWER + 2) * n_vocab * sizeof *out);
    struct cb_session *s, *copy;

    if (is_far)
        make_far(m->dev, is_far - 1);
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ok(cb_session_prefill(s, text, PROMPT - CUT, NULL));
    ck_assert_int_eq(s->w.part != NULL, is_far == 1);
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    ck_assert_ok(cb_session_prefill(s, text + PROMPT - CUT, CUT, NULL));
    memcpy(out + n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    for (int i = 0; i < ANSWER; i++) {
        if (i == ANSWER / 2) { /* goes on as a copy */
            ck_assert_ok(cb_session_fork(s, &copy));
            cb_session_close(s);
            s = copy;
        }
        ck_assert_ok(cb_session_decode(s, text[PROMPT + i]));
        memcpy(out + (size_t)(i + 2) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_close(s);
    if (is_far) {
        ck_assert_int_eq(far.n_alloc, 0);
        ck_assert_int_eq(far.n_area, 0);
        ck_assert_int_gt(far.n_wait, 0);
        ck_assert(!far.n_ahead || !strncmp(policy, "omnikv", 6));
        ck_assert(far.n_ahead || strncmp(policy, "omnikv", 6) || strcmp(family, "qwen2"));
        m->dev->ops = far.near;
        munmap(far.arena, ARENA);
    }
    cb_model_close(m);
    return out;
}

static const struct {
    const char *policy, *prefill, *kv;
} cases[] = {
    { "full", NULL, "f16" },
    { "full", NULL, "q8_0" },
    { "full", NULL, "kivi4:32" },
    { "window:budget=64", NULL, "f16" },
    { "streamingllm:budget=64,positions=rolled", NULL, "f16" },
    { "h2o:budget=64", NULL, "f16" },
    { "tova:budget=64", NULL, "q8_0" },
    { "keydiff:budget=64,drop=chunk", NULL, "f16" },
    { "expected:budget=64", NULL, "f16" },
    { "snapkv:budget=96,floor=0.2", NULL, "f16" },
    { "snapkv:budget=96", NULL, "f16" },
    { "snapkv:budget=96", NULL, "kivi2:32" },
    { "pyramidkv:budget=96", NULL, "f16" },
    { "simlayerkv", NULL, "f16" },
    { "d2o:budget=64", NULL, "f16" },
    { "pod:sinks=4,recent=16", NULL, "f16" },
    { "pod:sinks=4,recent=32", NULL, "kivi4:32" },
    { "omnikv:filter=0,budget=32", NULL, "f16" },
    { "omnikv:filter=0,budget=32,select=exp,window=4", NULL, "f16" },
    { "sieve:budget=32,recent=8", NULL, "f16" },
    { "sieve:budget=32,recent=8", NULL, "kivi4:32" },
    { "quest:budget=48,dense=0", NULL, "f16" },
    { "infllm:local=16,sink=4,block=8,blocks=2", NULL, "f16" },
    { "quest:budget=48,dense=0", NULL, "kivi4:32" },
    { "minicache:start=0,retain=20,tail=3", NULL, "f16" },
    { "full", "omnikv:filter=0,chunk=32,ratio=0.5", "f16" },
};

START_TEST(same_text)
{
    static const char *const pair[] = { "qwen2", "mistral" };
    const int n =
        strncmp(cases[_i].policy, "minicache", 9) ? 2 : 1; /* not where layers have windows */
    char what[160];

    for (int f = 0; f < n; f++) {
        float *want = answer(pair[f], cases[_i].policy, cases[_i].prefill, cases[_i].kv, 0);
        float *got = answer(pair[f], cases[_i].policy, cases[_i].prefill, cases[_i].kv,
                            _i % 2 ? 1 : 1 << 20);
        struct cb_model *m = model_of(pair[f]);
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        for (int i = 0; i < ANSWER + 2; i++) {
            snprintf(what, sizeof what, "%s, %s %s: feed %d", pair[f], cases[_i].policy,
                     cases[_i].kv, i);
            ck_assert_msg(!memcmp(want + (size_t)i * n_vocab, got + (size_t)i * n_vocab,
                                  n_vocab * sizeof *want),
                          "%s differs", what);
        }
        cb_model_close(m);
        free(want);
        free(got);
    }
}
END_TEST

/* ---- every family ---- */

static cb_model *recipe_model(const char *name, struct recipe *r)
{
    struct gguf_make g;
    cb_model *m;
    char path[64];

    cb_recipe_open(r, name);
    cb_recipe_make(r, &g);
    snprintf(path, sizeof path, "check_far_memory.%d.gguf", (int)getpid());
    cb_make_save(&g, path);
    ck_assert_ok(cb_model_open(path, &(struct cb_model_params){ .n_threads = 2 }, &m));
    unlink(path);
    return m;
}

/* A prompt in chunks, and tokens -> the last token's logits [n_vocab] */
static float *last_logits(const char *name, int is_far)
{
    struct recipe r;
    cb_model *m = recipe_model(name, &r);
    const struct cb_session_params p = { .n_ctx = r.n_ctx, .chunk = 7 };
    const size_t n_vocab = (size_t)cb_n_vocab(m);
    float *out = malloc(n_vocab * sizeof *out);
    cb_session *s;

    if (is_far)
        make_far(m->dev, 0);
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ok(cb_session_prefill(s, r.ids, r.n - 10, NULL));
    for (int i = r.n - 10; i < r.n; i++)
        ck_assert_ok(cb_session_decode(s, r.ids[i]));
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    cb_session_close(s);
    if (is_far) {
        ck_assert_int_eq(far.n_alloc, 0);
        m->dev->ops = far.near;
        munmap(far.arena, ARENA);
    }
    cb_model_close(m);
    cb_recipe_close(&r);
    return out;
}

static const char *const families[] = {
    "gemma3", "gpt-oss",    "granitemoe", "llama4",     "falcon40b", "stablelm12b", "starcoder2",
    "olmo3",  "deepseek32", "glm-dsa",    "minimax-m3", "qwen4exp",  "deepseek4",
};

START_TEST(same_logits)
{
    char name[64];
    float *want, *got;

    snprintf(name, sizeof name, "family-%s.json", families[_i]);
    want = last_logits(name, 0);
    got = last_logits(name, 1);
    for (int i = 0; i < 320; i++)
        ck_assert_msg(want[i] == got[i], "%s: logit %d differs", name, i);
    free(want);
    free(got);
}
END_TEST

/* ---- the choice of a device ---- */

/* 2 G operations and 1 GB a token, 10 layers, on round limits */
START_TEST(seconds_at_limits)
{
    const struct device_load m = { 2e9, 1e9, 10 };
    const double host[LIMIT_COUNT] = {
        [LIMIT_READ] = 1e10, [LIMIT_F32] = 1e11, [LIMIT_INT8] = 5.12e11
    };
    const double card[LIMIT_COUNT] = {
        [LIMIT_READ] = 1e11, [LIMIT_F32] = 1.024e13, [LIMIT_IN] = 1e10, [LIMIT_LAUNCH] = 2.4e5
    };

    /* a prompt 512 * 2e9 / 5.12e11 = 2 s, 128 tokens of 0.1 s */
    ck_assert_double_eq_tol(cb_device_seconds(&m, host, host, 0), 14.8, 1e-9);
    /* 0.1 s, and tokens of 10 ms and 240 kernels at 1 ms */
    ck_assert_double_eq_tol(cb_device_seconds(&m, card, host, 2000000000), 1.508, 1e-9);
    /* half of the weights: 50 ms more for the prompt, 45 ms more a token */
    ck_assert_double_eq_tol(cb_device_seconds(&m, card, host, 500000000), 7.318, 1e-9);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("far memory");
    TCase *t = tcase_create("sessions");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, same_text, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(t, same_logits, 0, sizeof families / sizeof *families);
    tcase_add_test(t, seconds_at_limits);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
