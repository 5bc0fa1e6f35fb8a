/* SPDX-License-Identifier: MIT */
/* check_block_prefill.c - prompts whose query heads read some blocks of the tokens before them:
 * held to the rules in doubles, and to what must hold for any model. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/prefill/block_prefill.h"
#include "device/prompt_blocks.h"
#include "device/sketch.h"
#include "kit/inside.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_LAYER = 2, N_HEAD = 4, N_KV = 2, HD = 8, NQ = N_HEAD * HD };
enum { BLOCK = KV_PREPACK, N = 5 * BLOCK + 45, N_BLOCK = 6 };

static const struct hparams small = CB_TOY_SHAPE(N_LAYER, N_HEAD, N_KV, HD, HD, N);
static const char *const devices[] = { "ref", "cpu" };

/* ---- the rules, in doubles ---- */

static double dot(struct toy *t, int l, int h, int i, int j)
{
    const float *q = cb_toy_row(t, l, i) + h * HD;
    const float *k = cb_toy_row(t, l, j) + NQ + h / (N_HEAD / N_KV) * HD;
    double x = 0;

    for (int c = 0; c < HD; c++)
        x += (double)q[c] * (double)k[c];
    return x / sqrt(HD);
}

/* What the antidiagonals of block `own` of queries give the blocks up to it -> mass[own + 1] */
static void antidiagonals(struct toy *t, int l, int h, int own, int stride, double *mass)
{
    memset(mass, 0, N_BLOCK * sizeof *mass);
    for (int I = own * BLOCK; I < (own + 1) * BLOCK && I < N; I += stride) {
        double e[N], sum = 0;
        for (int J = 0; J <= I; J += stride) {
            double x = 0;
            for (int a = 0; a < stride; a++)
                if (I + stride - 1 - a < N && J + a < N)
                    x += dot(t, l, h, I + stride - 1 - a, J + a);
            e[J] = exp(x / stride);
            sum += e[J];
        }
        for (int J = 0; J <= I; J += stride)
            mass[J / BLOCK] += e[J] / sum;
    }
}

/* What the sketched keys of the blocks before block `own` give them: the reference device's, from
 * the whole prompt at once */
static void sketches(struct toy *t, int l, int h, int own, int bits, int stride, double *mass)
{
    const int n = (own + 1) * BLOCK < N ? (own + 1) * BLOCK : N;
    float *k = malloc(N * HD * sizeof *k), out[N_BLOCK];
    uint8_t *sketch = calloc(N_BLOCK, cb_sketch_bytes(bits, HD));
    struct device *ref;
    const struct block_mass m = { .n_tok = n - own * BLOCK,
                                  .n_head = 1,
                                  .n_kv = 1,
                                  .hd = HD,
                                  .first = own * BLOCK,
                                  .stride = stride,
                                  .scale = 1 / sqrtf(HD),
                                  .q = cb_toy_row(t, l, own * BLOCK) + h * HD,
                                  .q_stride = t->row,
                                  .bits = bits,
                                  .sketch = sketch,
                                  .out = out,
                                  .n_row = 1,
                                  .n_col = own + 1 };

    ck_assert(!cb_device_open("ref", 1, &ref));
    for (int j = 0; j < N; j++)
        memcpy(k + j * HD, cb_toy_row(t, l, j) + NQ + h / (N_HEAD / N_KV) * HD, HD * sizeof *k);
    ref->ops->sketch(ref, KV_F32, k, N / BLOCK, HD, bits, 4, sketch);
    ref->ops->block_mass(ref, &m);
    memset(mass, 0, N_BLOCK * sizeof *mass);
    for (int j = 0; j <= own; j++)
        mass[j] = (double)out[j];
    cb_device_close(ref);
    free(k);
    free(sketch);
}

/* The first block and the last, then the best of the others until the threshold is reached */
static void choose(const double *mass, int own, double threshold, int *reads)
{
    double all = 0, have = 0;

    memset(reads, 0, N_BLOCK * sizeof *reads);
    reads[0] = reads[own] = 1;
    for (int j = 0; j <= own; j++) {
        all += mass[j];
        have += reads[j] ? mass[j] : 0;
    }
    while (have < threshold * all) {
        int best = -1;
        for (int j = 0; j <= own; j++)
            if (!reads[j] && (best < 0 || mass[j] > mass[best]))
                best = j;
        if (best < 0)
            break;
        reads[best] = 1;
        have += mass[best];
    }
}

/* sample > 0: one in this many tokens of blocks that are not read has the weight of all. Returns
 * the pairs read */
static int attend(struct toy *t, int l, int h, int i, const int *reads, int sample, double *out)
{
    double sum = 0;
    int n = 0;

    memset(out, 0, HD * sizeof *out);
    for (int j = 0; j <= i; j++) {
        const float *v = cb_toy_row(t, l, j) + NQ + (N_KV + h / (N_HEAD / N_KV)) * HD;
        double p;
        if (!reads[j / BLOCK] &&
            (!sample || cb_block_prefill_sampled(i / BLOCK, h, j / sample * sample, sample) != j))
            continue;
        n++;
        p = exp(dot(t, l, h, i, j)) * (reads[j / BLOCK] ? 1 : sample);
        sum += p;
        for (int c = 0; c < HD; c++)
            out[c] += p * (double)v[c];
    }
    for (int c = 0; c < HD; c++)
        out[c] /= sum;
    return n;
}

static const struct {
    const char *prefill;
    int bits, stride;
    double threshold;
    int last, sample, upper; /* upper: layers */
} rules[] = {
    { "xattention:threshold=0.7", 0, 8, 0.7, 0, 0, 0 },
    { "xattention:threshold=0.5,stride=16", 0, 16, 0.5, 0, 0, 0 },
    { "xattention:threshold=0.6,stride=4", 0, 4, 0.6, 0, 0, 0 },
    { "sieve:threshold=0.6", 2, 16, 0.6, 0, 0, 0 },
    { "sieve:threshold=0.5,bits=4,stride=50", 4, 50, 0.5, 0, 0, 0 },
    { "xattention:threshold=0.5,stride=16,last=100", 0, 16, 0.5, 100, 0, 0 },
    { "sieve:threshold=0.6,last=1", 2, 16, 0.6, 1, 0, 0 },
    { "xattention:threshold=0.4,sample=4", 0, 8, 0.4, 0, 4, 0 },
    { "sieve:threshold=0.4,last=100,sample=32", 2, 16, 0.4, 100, 32, 0 },
    { "xattention:threshold=0.6,upper=0.5", 0, 8, 0.6, 0, 0, 1 },
    { "sieve:threshold=0.6,last=1,sample=4,upper=0.5", 2, 16, 0.6, 1, 4, 1 },
    { "xattention:threshold=1,upper=0.5", 0, 8, 1, 0, 0, 1 },
};

static void estimate(struct toy *t, int rule, int l, int h, int own, double *mass)
{
    if (rules[rule].bits)
        sketches(t, l, h, own, rules[rule].bits, rules[rule].stride, mass);
    else
        antidiagonals(t, l, h, own, rules[rule].stride, mass);
}

START_TEST(reads_what_the_rule_says)
{
    const char *prefill = rules[_i / 2].prefill;
    const int last = rules[_i / 2].last, upper = rules[_i / 2].upper;
    float *out = malloc(N_LAYER * N * NQ * sizeof *out);
    uint64_t read = 0, all = 0;
    struct toy t;

    cb_toy_open_prefill(&t, devices[_i % 2], &small, N, "full", prefill, 11);
    cb_toy_prompt(&t, N, BLOCK, out);
    for (int l = 0; l < N_LAYER; l++)
        for (int h = 0; h < N_HEAD; h++)
            for (int i = 0, reads[N_BLOCK]; i < N; i++) {
                double mass[N_BLOCK], want[HD];
                if (i % BLOCK == 0) {
                    estimate(&t, _i / 2, l, h, i / BLOCK, mass);
                    choose(mass, i / BLOCK, l < N_LAYER - upper ? rules[_i / 2].threshold : 0,
                           reads);
                    if (l >= N_LAYER - upper && i >= BLOCK)
                        reads[i / BLOCK - 1] = 1;
                }
                for (int b = 0; last && i / BLOCK >= (N - last) / BLOCK && b < N_BLOCK; b++)
                    reads[b] = 1;
                read += (uint64_t)attend(&t, l, h, i, reads,
                                         l < N_LAYER - upper ? rules[_i / 2].sample : 0, want);
                for (int d = 0; d < HD; d++)
                    ck_assert_msg(
                        fabs((double)out[((l * N + i) * N_HEAD + h) * HD + d] - want[d]) <= 3e-6,
                        "%s: layer %d, token %d, head %d", prefill, l, i, h);
                all += (uint64_t)i + 1;
            }
    ck_assert(t.s->bank.pairs_all == all && t.s->bank.pairs_read == read && read < all);
    cb_toy_close(&t);
    free(out);
}
END_TEST

/* The example of the specification */
START_TEST(blocks_by_mass)
{
    static const float mass[6] = { .10f, .03f, .32f, .05f, .15f, .35f };
    static const struct {
        double keep;
        const char *reads;
    } cases[] = {
        { 0, "100001" }, { .5, "101001" }, { .8, "101011" }, { .9, "101011" }, { .98, "111111" }
    };
    struct found work[6];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t reads[6] = { 0 };
        cb_block_prefill_mark(mass, 5, cases[i].keep, work, reads);
        for (int j = 0; j < 6; j++)
            ck_assert_msg(reads[j] == cases[i].reads[j] - '0', "keep %g: block %d", cases[i].keep,
                          j);
    }
}
END_TEST

/* Each token of a group stands for it about as often as the others. */
START_TEST(samples_are_even)
{
    int n[16] = { 0 };

    for (int own = 1; own < 40; own++)
        for (int h = 0; h < 8; h++)
            for (int first = 0; first < own * BLOCK; first += 16)
                n[cb_block_prefill_sampled(own, h, first, 16) - first]++;
    for (int j = 0; j < 16; j++) /* 3,120 each; 5 standard deviations */
        ck_assert_msg(abs(n[j] - 3120) < 280, "%d: %d", j, n[j]);
}
END_TEST

/* Of equal blocks the lower ones are read. */
START_TEST(ties_are_by_position)
{
    static const float mass[7] = { .125f, .125f, .125f, .125f, .125f, .125f, .25f };
    uint8_t reads[7] = { 0 };
    struct found work[7];

    cb_block_prefill_mark(mass, 6, 0.625, work, reads);
    for (int j = 0; j < 7; j++)
        ck_assert_int_eq(reads[j], j <= 2 || j == 6);
}
END_TEST

/* Queries, keys and values are given, so a policy that looks at them must see what it sees in a
 * dense prompt. */
START_TEST(policies_measure_all_tokens)
{
    static const char *const policy[] = { "snapkv:budget=200,window=5",
                                          "pyramidkv:budget=300,window=3", "expected:budget=200",
                                          "simlayerkv:sink=2,recent=100,mode=prefill,window=6" };
    for (size_t p = 0; p < sizeof policy / sizeof *policy; p++) {
        struct toy a, b;
        cb_toy_open_prefill(&a, devices[_i], &small, N, policy[p], "dense", 3);
        cb_toy_open_prefill(&b, devices[_i], &small, N, policy[p], "xattention:threshold=0.6", 3);
        cb_toy_prompt(&a, N, BLOCK, NULL);
        cb_toy_prompt(&b, N, BLOCK, NULL);
        for (int l = 0; l < N_LAYER; l++)
            for (int h = 0; h < N_KV; h++) {
                const struct store *x = &a.s->bank.store[l], *y = &b.s->bank.store[l];
                ck_assert_int_eq(x->n[h], y->n[h]);
                for (int i = 0; i < x->n[h]; i++)
                    ck_assert_msg(cb_store_pos(x, h, i) == cb_store_pos(y, h, i),
                                  "%s: layer %d, head %d", policy[p], l, h);
            }
        cb_toy_close(&a);
        cb_toy_close(&b);
    }
}
END_TEST

/* ---- patterns, in doubles ---- */

enum { SINK = 128, LOCAL = 150, VERTICAL = 30, SLASH = 110, SPARSE = 3 };

/* p[i][j] of the chunk's last 64 queries -> columns and diagonals */
static void lines(struct toy *t, int l, int h, int begin, int end, double *column, double *diagonal)
{
    memset(column, 0, N * sizeof *column);
    memset(diagonal, 0, N * sizeof *diagonal);
    for (int i = end - 64 > begin ? end - 64 : begin; i < end; i++) {
        double sum = 0;
        for (int j = 0; j <= i; j++)
            sum += exp(dot(t, l, h, i, j));
        for (int j = 0; j <= i; j++) {
            column[j] += exp(dot(t, l, h, i, j)) / sum;
            diagonal[i - j] += exp(dot(t, l, h, i, j)) / sum;
        }
    }
}

/* Marks the k largest of x[n], the first `sure` among them. */
static void mark_largest(const double *x, int n, int k, int sure, char *mark)
{
    memset(mark, 0, N);
    for (int m = 0; m < k && m < n; m++) {
        int best = -1;
        for (int j = 0; j < n; j++)
            if (!mark[j] && (best < 0 || (j < sure && best >= sure) ||
                             ((j < sure) == (best < sure) && x[j] > x[best])))
                best = j;
        mark[best] = 1;
    }
}

/* The blocks nearest to the mean query of block own */
static void nearest_blocks(struct toy *t, int l, int h, int own, int end, int *reads)
{
    double q[HD] = { 0 }, score[N_BLOCK];

    for (int i = own * BLOCK; i < (own + 1) * BLOCK && i < end; i++)
        for (int d = 0; d < HD; d++)
            q[d] += (double)cb_toy_row(t, l, i)[h * HD + d];
    for (int b = 0; b < own; b++) {
        score[b] = 0;
        for (int j = b * BLOCK; j < (b + 1) * BLOCK; j++)
            for (int d = 0; d < HD; d++)
                score[b] += q[d] * (double)cb_toy_row(t, l, j)[NQ + h / (N_HEAD / N_KV) * HD + d];
    }
    for (int n = 1; n < SPARSE && n <= own; n++) {
        int best = -1;
        for (int b = 0; b < own; b++)
            if (!reads[b] && (best < 0 || score[b] > score[best]))
                best = b;
        reads[best] = 1;
    }
    reads[own] = 1;
}

/* What query block `own` of a head reads in a chunk -> mark[N], entries up to each query's own */
static void by_pattern(struct toy *t, int pattern, int l, int h, int begin, int end, int own,
                       char *mark)
{
    int reads[N_BLOCK] = { 0 };
    double column[N], diagonal[N];
    char vertical[N] = { 0 }, slash[N] = { 0 };

    if (pattern == 1)
        for (int i = own * BLOCK; i < (own + 1) * BLOCK; i++)
            for (int j = 0; j <= i; j++)
                reads[j / BLOCK] |= j < SINK || i - j < LOCAL;
    if (pattern == 2) {
        lines(t, l, h, begin, end, column, diagonal);
        mark_largest(column, end, VERTICAL, 30, vertical);
        mark_largest(diagonal, end, SLASH, 100, slash);
        for (int i = own * BLOCK; i < (own + 1) * BLOCK; i++)
            for (int j = 0; j <= i; j++)
                reads[j / BLOCK] |= i - j < end && slash[i - j];
    }
    if (pattern == 3)
        nearest_blocks(t, l, h, own, end, reads);
    for (int j = 0; j < N; j++)
        mark[j] = (char)(reads[j / BLOCK] || vertical[j]);
}

static void attend_marked(struct toy *t, int l, int h, int i, const char *mark, double *out)
{
    double sum = 0;

    memset(out, 0, HD * sizeof *out);
    for (int j = 0; j <= i; j++) {
        const float *v = cb_toy_row(t, l, j) + NQ + (N_KV + h / (N_HEAD / N_KV)) * HD;
        const double p = mark[j] ? exp(dot(t, l, h, i, j)) : 0;
        sum += p;
        for (int c = 0; c < HD; c++)
            out[c] += p * (double)v[c];
    }
    for (int c = 0; c < HD; c++)
        out[c] /= sum;
}

static const char *const pattern_specs[] = {
    NULL, "minference:pattern=a-shape,sink=128,local=150,least=0,chunk=256",
    "minference:pattern=vertical-slash,vertical=30,slash=110,least=0,chunk=256",
    "minference:pattern=block-sparse,blocks=3,least=0,chunk=256"
};

START_TEST(reads_what_the_pattern_says)
{
    const int pattern = 1 + _i / 2, CHUNK = 256;
    float *out = malloc(N_LAYER * N * NQ * sizeof *out);
    uint64_t read = 0;
    struct toy t;
    char mark[N];

    cb_toy_open_prefill(&t, devices[_i % 2], &small, N, "full", pattern_specs[pattern], 5);
    cb_toy_prompt(&t, N, CHUNK, out);
    for (int l = 0; l < N_LAYER; l++)
        for (int h = 0; h < N_HEAD; h++)
            for (int i = 0; i < N; i++) {
                const int begin = i / CHUNK * CHUNK, end = begin + CHUNK < N ? begin + CHUNK : N;
                double want[HD];
                if (i % BLOCK == 0)
                    by_pattern(&t, pattern, l, h, begin, end, i / BLOCK, mark);
                if (end <= 2 * BLOCK)
                    memset(mark, 1, sizeof mark);
                attend_marked(&t, l, h, i, mark, want);
                for (int d = 0; d < HD; d++)
                    ck_assert_msg(
                        fabs((double)out[((l * N + i) * N_HEAD + h) * HD + d] - want[d]) <= 3e-6,
                        "%s: layer %d, token %d, head %d", pattern_specs[pattern], l, i, h);
                for (int j = 0; j <= i; j++)
                    read += (uint64_t)mark[j];
            }
    ck_assert(t.s->bank.pairs_read == read && read < t.s->bank.pairs_all);
    cb_toy_close(&t);
    free(out);
}
END_TEST

/* ---- tiny models ---- */

enum { PROMPT = 470, MORE = 300, STEPS = 3 };

static struct cb_model *deep(int n_threads)
{
    struct tiny t = cb_tiny_small("qwen2");

    t.n_layer = 3;
    t.n_embd = 64;
    t.hd = 32;
    t.n_ctx = PROMPT + MORE + STEPS;
    return cb_toy_model(&t, "cpu", n_threads);
}

/* Logits after two prompts and some decoded tokens -> out[STEPS + 2][n_vocab] */
static float *run_model(struct cb_model *m, const char *policy, const char *prefill, int chunk,
                        double *density)
{
    const struct cb_session_params params = {
        .policy = policy, .prefill = prefill, .chunk = chunk, .n_ctx = PROMPT + MORE + STEPS
    };
    const size_t n_vocab = (size_t)m->hp.n_vocab;
    float *out = malloc((STEPS + 2) * n_vocab * sizeof *out);
    struct cb_memory mem;
    struct cb_session *s;
    int32_t tok[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        tok[i] = (i * 37 + i * i % 11) % m->hp.n_vocab;
    ck_assert_ok(cb_session_open(m, &params, &s));
    for (int i = 0; i < STEPS + 2; i++) {
        const int err = i == 0           ? cb_session_prefill(s, tok, PROMPT, NULL)
                        : i == STEPS + 1 ? cb_session_prefill(s, tok + 1, MORE, NULL)
                                         : cb_session_decode(s, (i * 13 + 5) % m->hp.n_vocab);
        ck_assert_msg(!err, "%s", cb_error());
        memcpy(out + (size_t)i * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_memory(s, &mem);
    if (density)
        *density = mem.prompt_density;
    cb_session_close(s);
    return out;
}

static int alike(struct cb_model *m, const float *x, const float *y)
{
    return !memcmp(x, y, (STEPS + 2) * (size_t)m->hp.n_vocab * sizeof *x);
}

static const char *const all_blocks[] = {
    "xattention:threshold=1",
    "sieve:threshold=1",
    "xattention:threshold=0.1,last=9999",
    "minference:pattern=vertical-slash,vertical=9999,slash=9999,least=0",
    "minference:pattern=a-shape,local=9999,least=0",
    "minference:pattern=block-sparse,blocks=99,least=0",
    "minference"
};

START_TEST(reading_all_is_dense)
{
    static const char *const policy[] = { "full", "snapkv:budget=200,window=16",
                                          "sieve:budget=64" };
    struct cb_model *m = deep(2);

    for (size_t p = 0; p < sizeof policy / sizeof *policy; p++) {
        double density;
        float *x = run_model(m, policy[p], "dense", 0, NULL);
        float *y = run_model(m, policy[p], all_blocks[_i], 0, &density);
        ck_assert_msg(alike(m, x, y), "%s, prefill %s: differs", policy[p], all_blocks[_i]);
        ck_assert(density == 1 || p == 1);
        free(x);
        free(y);
    }
    cb_model_close(m);
}
END_TEST

static const char *const sparse[] = {
    "xattention:threshold=0.3",
    "sieve:threshold=0.3",
    "sieve:threshold=0.3,last=1",
    "xattention:threshold=0.2,sample=8",
    "xattention:threshold=0.3,upper=0.34",
    "minference:recall=0.5,local=100,vertical=40,slash=100,blocks=2,least=0,chunk=128",
    "minference:pattern=vertical-slash,vertical=40,slash=100,least=0,chunk=128"
};

START_TEST(reading_some_is_not)
{
    struct cb_model *m = deep(2);
    double density;
    float *x = run_model(m, "full", NULL, 0, NULL);
    float *y = run_model(m, "full", sparse[_i], 0, &density);

    ck_assert(!alike(m, x, y));
    ck_assert_msg(density > 0.2 && density < 0.95, "density %g", density);
    free(x);
    free(y);
    cb_model_close(m);
}
END_TEST

/* The second prompt begins within a block, over prepacked keys. */
START_TEST(threads_and_chunks_do_not_matter)
{
    static const char *const policy[] = { "full", "snapkv:budget=200,window=16",
                                          "streamingllm:budget=240", "quest:budget=128" };
    struct cb_model *one = deep(1), *two = deep(2);

    for (size_t i = 0; i < sizeof policy / sizeof *policy; i++) {
        float *x = run_model(one, policy[i], sparse[_i], 0, NULL);
        float *y = run_model(two, policy[i], sparse[_i], 0, NULL);
        float *z = run_model(two, policy[i], sparse[_i], 170, NULL);
        ck_assert_msg(alike(one, x, y), "%s: threads", policy[i]);
        ck_assert_msg(alike(one, x, z), "%s: chunks", policy[i]);
        free(x);
        free(y);
        free(z);
    }
    cb_model_close(one);
    cb_model_close(two);
}
END_TEST

static const struct {
    const char *policy, *prefill, *why;
    int chunk;
} refused[] = {
    { "full", "xattention:threshold=1.5", "must be", 0 },
    { "full", "xattention:stride=3", "must be one of: 4 8 16", 0 },
    { "full", "sieve:bits=3", "must be one of: 2 4", 0 },
    { "full", "sieve:sample=5", "must be one of: 0 4 8", 0 },
    { "d2o", "sieve", "not with policy d2o: it sums the scores of all queries", 0 },
    { "full", "xattention:upper=2", "must be", 0 },
    { "full", "minference:chunk=200", "chunk=200: must be a multiple of 128", 0 },
    { "full", "minference", "chunks of 512 tokens at least, not 300", 300 },
    { "full", "minference:pattern=x", "must be one of: best a-shape", 0 },
    { "full", "xattension", "did you mean xattention", 0 },
    { "full", "xattention", "chunks of 128 tokens at least, not 100", 100 },
    { "h2o", "xattention", "not with policy h2o: it sums the scores of all queries", 0 },
    { "pod", "xattention", "not with policy pod", 0 },
    { "streamingllm:prefill=windowed", "xattention", "drops tokens within the prompt", 0 },
};

START_TEST(bad_options_are_refused)
{
    struct cb_model *m = deep(1);
    const struct cb_session_params params = { .policy = refused[_i].policy,
                                              .prefill = refused[_i].prefill,
                                              .chunk = refused[_i].chunk };

    cb_toy_refused(m, &params, refused[_i].why);
    cb_model_close(m);
}
END_TEST

#define COUNT(x) (int)(sizeof(x) / sizeof *(x))

int main(void)
{
    Suite *suite = suite_create("block_prefill");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, reads_what_the_rule_says, 0, 2 * COUNT(rules));
    tcase_add_loop_test(c, reads_what_the_pattern_says, 0, 6);
    tcase_add_test(c, blocks_by_mass);
    tcase_add_test(c, ties_are_by_position);
    tcase_add_test(c, samples_are_even);
    tcase_add_loop_test(c, policies_measure_all_tokens, 0, COUNT(devices));
    tcase_add_loop_test(c, reading_all_is_dense, 0, COUNT(all_blocks));
    tcase_add_loop_test(c, reading_some_is_not, 0, COUNT(sparse));
    tcase_add_loop_test(c, threads_and_chunks_do_not_matter, 0, COUNT(sparse));
    tcase_add_loop_test(c, bad_options_are_refused, 0, COUNT(refused));
    tcase_set_timeout(c, 180);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
