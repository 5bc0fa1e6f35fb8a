/* SPDX-License-Identifier: MIT */
/* check_sieve.c - the slots that sketched keys (sieve) and bounds of pages (quest) choose,
 * attention over them, and what must hold for any model. That a budget that holds all changes no
 * bit is checked here for texts of several blocks, and in check_policy.c. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/readers/slot_lists.h"
#include "bank/store_sketch.h"
#include "device/sketch.h"
#include "kit/found_slots.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum {
    N_LAYER = 3,
    N_HEAD = 6,
    N_KV = 2,
    HD = 32,
    GROUP = N_HEAD / N_KV,
    PROMPT = 540,
    N = PROMPT + 20 / CB_SLOWED
};

static const struct hparams shape = CB_TOY_SHAPE(N_LAYER, N_HEAD, N_KV, HD, HD, N);
static const char *const devices[] = { "ref", "cpu" };

/* ---- without weights ---- */

static float *query(struct toy *t, int l, int h, int i)
{
    return cb_toy_row(t, l, i) + h * HD;
}

static float *stored(struct toy *t, int l, int kv, int v, int j)
{
    return cb_toy_row(t, l, j) + (N_HEAD + v * N_KV + kv) * HD;
}

/* Queries that differ much from key to key, so that few tokens matter */
static void sharpen(struct toy *t)
{
    for (int l = 0; l < N_LAYER; l++)
        for (int i = 0; i < N; i++)
            for (int c = 0; c < N_HEAD * HD; c++)
                query(t, l, 0, i)[c] *= 4;
}

/* The tokens before the next one get the layer's keys and values as it has stored them. */
static void as_stored(struct toy *t, int l)
{
    for (int kv = 0; kv < N_KV; kv++)
        for (int v = 0; v < 2; v++)
            for (int j = 0; j < t->s->bank.store[l].n[kv]; j++)
                cb_store_get(&t->s->bank.store[l], t->s->dev, kv, v, j, stored(t, l, kv, v, j));
}

/* The softmax of query head h of token i over the tokens up to it that `reads` (NULL: all) marks */
static void softmax(struct toy *t, int l, int h, int i, const char *reads, double *p)
{
    double sum = 0;

    for (int j = 0; j <= i; j++) {
        const float *q = query(t, l, h, i), *k = stored(t, l, h / GROUP, 0, j);
        double x = 0;
        for (int c = 0; c < HD; c++)
            x += (double)q[c] * (double)k[c];
        sum += p[j] = reads && !reads[j] ? 0 : exp(x / sqrt((double)HD));
    }
    for (int j = 0; j <= i; j++)
        p[j] /= sum;
}

/* The output of query heads first..end-1 is attention over exactly these slots. */
static void attends(struct toy *t, int l, int i, const char *reads, int first, int end,
                    const float *out)
{
    double p[N];

    for (int h = first; h < end; h++) {
        softmax(t, l, h, i, reads, p);
        for (int c = 0; c < HD; c++) {
            double want = 0;
            for (int j = 0; j <= i; j++)
                want += p[j] * (double)stored(t, l, h / GROUP, 1, j)[c];
            ck_assert_msg(fabs((double)out[h * HD + c] - want) <
                              (t->s->bank.type_k == KV_F32 ? 2e-6 : 4e-3),
                          "token %d, head %d: %g, not %g", i, h, (double)out[h * HD + c], want);
        }
    }
}

static int larger(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Weight of the chosen tokens lo..hi-1, in the sum of the largest weights of any head, beside that
 * of the k best */
static double worth(struct toy *t, int l, int kv, int i, const char *reads, int lo, int hi, int k)
{
    double best[N] = { 0 }, got = 0, most = 0, p[N];

    for (int h = kv * GROUP; h < (kv + 1) * GROUP; h++) {
        softmax(t, l, h, i, NULL, p);
        for (int j = lo; j < hi; j++)
            best[j] = fmax(best[j], p[j]);
    }
    for (int j = lo; j < hi; j++)
        got += reads[j] ? best[j] : 0;
    qsort(best + lo, (size_t)(hi - lo), sizeof *best, larger);
    for (int j = lo; j < lo + k; j++)
        most += best[j];
    return got / most;
}

static const struct {
    const char *policy;
    int k, sink, recent, bits, window;
    const char *type_k, *type_v;
} choices[] = {
    { "sieve:budget=40,sink=3,recent=20", 40, 3, 20, 2, 0, "f32", "f32" },
    { "sieve:budget=40,sink=3,recent=70,bits=4", 40, 3, 70, 4, 0, "f32", "f32" },
    { "sieve:budget=1,sink=0,recent=1", 1, 0, 1, 2, 0, "f32", "f32" },
    { "sieve:budget=0.1,sink=200,recent=1", 31, 200, 1, 2, 0, "f32", "f32" },
    { "sieve:budget=40,sink=3,recent=20", 40, 3, 20, 2, 410, "f32", "f32" },
    { "sieve:budget=40,sink=3,recent=20", 40, 3, 20, 2, 0, "planes", "f32" },
    { "sieve:budget=40,sink=3,recent=70,bits=4", 40, 3, 70, 4, 0, "planes", "q8_0" },
    { "sieve:budget=0.1,sink=200,recent=1", 31, 200, 1, 2, 0, "planes", "f16" },
    { "sieve:budget=40,sink=3,recent=20", 40, 3, 20, 2, 410, "planes", "f32" },
    { "sieve:budget=40,sink=3,recent=20,channels=half", 40, 3, 20, 2, 0, "f32", "f32" },
    { "sieve:budget=40,sink=3,recent=70,bits=4,channels=half", 40, 3, 70, 4, 0, "planes", "q8_0" },
};
enum { N_CHOICE = sizeof choices / sizeof *choices };

/* Bytes that a token reads in layer l of n slots, as planned */
static uint64_t read_of(const struct toy *t, int l, int n)
{
    const struct planned p = { .n_prompt = n, .n_slot = n };
    uint64_t scanned;

    return cb_attention_read_bytes(&t->s->attention, l, n, &p, &scanned);
}

/* Token i, which is the newest, in the last layer, which is at hand */
static double check_choice(struct toy *t, int c, int i, const float *out)
{
    const int window = choices[c].window, first = window ? i + 1 - window : 0;
    const int lo = choices[c].sink > first ? choices[c].sink : first, sketched = i / 128 * 128;
    const int hi = sketched < i + 1 - choices[c].recent ? sketched : i + 1 - choices[c].recent;
    double sum = 0;

    for (int kv = 0; kv < N_KV; kv++) {
        char reads[N] = { 0 };
        int n, k = 0;
        const int32_t *slot = cb_slot_lists_slots(&t->s->attention, N_LAYER - 1, kv, &n);
        for (int j = 0; j < n; j++) {
            ck_assert(!j || slot[j] > slot[j - 1]);
            ck_assert(slot[j] >= first && slot[j] <= i);
            reads[slot[j]] = 1;
            k += slot[j] >= lo && slot[j] < hi;
        }
        ck_assert_int_eq(k, choices[c].k);
        ck_assert_int_eq(n, k + (lo - first) + (i + 1 - hi)); /* all others are read */
        attends(t, N_LAYER - 1, i, reads, kv * GROUP, (kv + 1) * GROUP,
                out + (N_LAYER - 1) * N_HEAD * HD);
        sum += worth(t, N_LAYER - 1, kv, i, reads, lo, hi, k) / N_KV;
    }
    return sum;
}

/* With planes, what lies before a window counts as in planes, and its first tokens are not. */
static void as_planned(const struct toy *t, uint64_t said, int exactly)
{
    const uint64_t got = t->s->bank.read_bytes;

    ck_assert_msg(exactly ? got == said : fabs((double)said / (double)got - 1) < 0.01,
                  "reads %llu bytes, planned %llu", (unsigned long long)got,
                  (unsigned long long)said);
}

START_TEST(reads_what_scores_best)
{
    for (int c = 0; c < N_CHOICE; c++) {
        struct hparams hp = shape;
        struct toy t;
        float out[N_LAYER * N_HEAD * HD];
        double sum = 0;
        int n = 0;
        hp.window = choices[c].window;
        cb_toy_open(&t, devices[_i], 2, &hp, N, choices[c].policy, choices[c].type_k,
                    choices[c].type_v, 7);
        sharpen(&t);
        cb_toy_prompt(&t, PROMPT, 100, NULL);
        for (int i = PROMPT; i < N; i++, n++) {
            as_stored(&t, N_LAYER - 1);
            cb_toy_decode(&t, out);
            sum += check_choice(&t, c, i, out);
            as_planned(&t, N_LAYER * read_of(&t, 0, i + 1),
                       strcmp(choices[c].type_k, "planes") || !choices[c].window);
        }
        /* half of random channels tell half of a logit */
        ck_assert_msg(sum / n > (choices[c].k == 1 || strstr(choices[c].policy, "half") ? 0.5
                                 : choices[c].bits == 4                                 ? 0.98
                                                                                        : 0.8),
                      "%s: %.3f of the weight", choices[c].policy, sum / n);
        cb_toy_close(&t);
    }
}
END_TEST

/* ---- pages ---- */

static const struct {
    const char *policy;
    int page, k, window, mean; /* k: pages, the current one among them */
    int per;                   /* query heads that share a choice */
} page_choices[] = {
    { "quest:budget=100,dense=0", 16, 6, 0, 0, GROUP },
    { "quest:budget=100,dense=2,group=mean", 16, 6, 0, 1, GROUP },
    { "quest:budget=1,page=7,dense=0", 7, 3, 0, 0, GROUP },
    { "quest:budget=0.3,page=20,dense=1", 20, 8, 0, 0, GROUP },
    { "quest:budget=64,dense=0", 16, 4, 410, 0, GROUP },
    { "quest:budget=100,dense=1,group=each", 16, 6, 0, 0, 1 },
    { "quest:budget=64,dense=0,group=each", 16, 4, 410, 0, 1 },
};
enum { N_PAGE_CHOICE = sizeof page_choices / sizeof *page_choices };

/* What the logits of a page's keys cannot exceed, by the paper's formula */
static double page_bound(struct toy *t, int l, int first, int per, int i, int page, int tokens,
                         int mean)
{
    double best = -INFINITY, sum = 0;

    for (int h = first; h < first + per; h++) {
        double x = 0;
        for (int c = 0; c < HD; c++) {
            const double q = (double)query(t, l, h, i)[c];
            double min = INFINITY, max = -INFINITY;
            for (int j = page * tokens; j < (page + 1) * tokens; j++) {
                min = fmin(min, (double)stored(t, l, h / GROUP, 0, j)[c]);
                max = fmax(max, (double)stored(t, l, h / GROUP, 0, j)[c]);
            }
            x += fmax(q * min, q * max);
        }
        best = fmax(best, x);
        sum += x / per;
    }
    return mean ? sum : best;
}

/* Token i in the last layer: whole pages, the best ones, and the current one as far as it goes */
static void check_pages(struct toy *t, int c, int i, const float *out)
{
    const int tokens = page_choices[c].page, first = page_choices[c].window ? i - 409 : 0;
    const int now = i / tokens, from = (first + tokens - 1) / tokens, per = page_choices[c].per;

    for (int list = 0; list < N_HEAD / per; list++) {
        char reads[N] = { 0 };
        double worst = INFINITY, best = -INFINITY;
        int n, k = 0;
        const int32_t *slot = cb_slot_lists_slots(&t->s->attention, N_LAYER - 1, list, &n);
        for (int j = 0; j < n; j++) {
            ck_assert(!j || slot[j] > slot[j - 1]);
            ck_assert(slot[j] >= first && slot[j] <= i);
            reads[slot[j]] = 1;
        }
        for (int p = from; p < now; p++) {
            const double x =
                page_bound(t, N_LAYER - 1, list * per, per, i, p, tokens, page_choices[c].mean);
            const int chosen = reads[p * tokens];
            for (int j = p * tokens; j < (p + 1) * tokens; j++)
                ck_assert_int_eq(reads[j], chosen);
            worst = chosen ? fmin(worst, x) : worst;
            best = chosen ? best : fmax(best, x);
            k += chosen;
        }
        ck_assert_int_eq(k, page_choices[c].k - 1);
        ck_assert_msg(worst >= best - 0.02, "a page of %g is read, one of %g is not", worst, best);
        ck_assert_int_eq(n, k * tokens + (i + 1 - now * tokens) + (from * tokens - first));
        attends(t, N_LAYER - 1, i, reads, list * per, (list + 1) * per,
                out + (N_LAYER - 1) * N_HEAD * HD);
    }
}

START_TEST(reads_the_pages_with_the_largest_bounds)
{
    for (int c = 0; c < N_PAGE_CHOICE; c++) {
        struct hparams hp = shape;
        struct toy t;
        float out[N_LAYER * N_HEAD * HD];
        hp.window = page_choices[c].window;
        cb_toy_open(&t, devices[_i], 2, &hp, N, page_choices[c].policy, "f32", "f32", 7);
        sharpen(&t);
        cb_toy_prompt(&t, PROMPT, 100, NULL);
        for (int i = PROMPT; i < N; i++) {
            uint64_t read = 0;
            cb_toy_decode(&t, out);
            check_pages(&t, c, i, out);
            for (int l = 0; l < N_LAYER; l++)
                read += t.s->attention.plan[l].sketch.page
                            ? read_of(&t, l, i + 1)
                            : N_KV * (uint64_t)(i + 1) * 2 * HD * sizeof(float);
            ck_assert_uint_eq(t.s->bank.read_bytes, read);
        }
        cb_toy_close(&t);
    }
}
END_TEST

/* No head misses more than it may, and a laxer bound reads less. As many as it takes are what no
 * budget binds, also where all would be allowed. */
START_TEST(misses_no_more_than_it_may)
{
    static const char *const policy[] = { "sieve:budget=500,miss=0.3,bits=4,recent=20,sink=0",
                                          "sieve:budget=500,miss=0.05,bits=4,recent=20,sink=0",
                                          "sieve:budget=auto,bits=4,recent=20,sink=0",
                                          "sieve:budget=auto,miss=0.3,bits=4,recent=20,sink=0" };
    const double may[] = { 0.3, 0.05, 0.05, 0.3 };
    int read[4] = { 0 };

    for (int c = 0; c < 4; c++) {
        struct toy t;
        float out[N_LAYER * N_HEAD * HD];
        cb_toy_open(&t, devices[_i], 2, &shape, N, policy[c], "f32", "f32", 7);
        sharpen(&t);
        cb_toy_prompt(&t, PROMPT, 100, NULL);
        for (int i = PROMPT; i < N; i++) {
            cb_toy_decode(&t, out);
            for (int h = 0; h < N_HEAD; h++) {
                double p[N], got = 0;
                int n;
                const int32_t *slot =
                    cb_slot_lists_slots(&t.s->attention, N_LAYER - 1, h / GROUP, &n);
                softmax(&t, N_LAYER - 1, h, i, NULL, p);
                for (int j = 0; j < n; j++)
                    got += p[slot[j]];
                ck_assert_msg(1 - got < may[c] * 1.2 + 0.02, "head %d misses %.3f", h, 1 - got);
                read[c] += n;
            }
        }
        ck_assert_int_lt(read[c], 480 * N_HEAD * (N - PROMPT)); /* the budget does not bind */
        cb_toy_close(&t);
    }
    ck_assert_int_lt(read[0], read[1]);
    ck_assert_int_eq(read[2], read[1]);
    ck_assert_int_eq(read[3], read[0]);
}
END_TEST

/* ---- tiny models ---- */

enum { CTX = 400, TEXT = 300, STEPS = 60, LATER = 9 };

static struct tiny deep(const char *family)
{
    struct tiny t = cb_tiny_small(family);
    t.n_layer = 4;
    t.n_embd = 256;
    t.hd = 32;
    t.n_head = 8; /* with fewer than 4 query heads a KV head, prepacked blocks differ from rows */
    t.n_kv = 2;
    t.n_ctx = CTX;
    t.window = t.window ? 200 : 0;
    return t;
}

static cb_session *open_session(struct cb_model *m, const char *policy, const char *type, int chunk)
{
    const struct cb_session_params p = { .n_ctx = CTX,
                                         .chunk = chunk,
                                         .policy = policy,
                                         .type_k = type,
                                         .type_v = cb_toy_values(type) };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

/* A prompt, generated tokens, a second turn and more tokens -> the logits after each feed */
static float *converse(struct cb_model *m, const char *policy, const char *type, int chunk)
{
    cb_session *s = open_session(m, policy, type, chunk);
    const size_t n = (size_t)m->hp.n_vocab;
    float *out = malloc((STEPS + 1) * n * sizeof *out);
    const int32_t *tok = cb_toy_text(m);

    ck_assert_ok(cb_session_prefill(s, tok, TEXT, NULL));
    memcpy(out, cb_session_logits(s), n * sizeof *out);
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS / 2)
            ck_assert_ok(cb_session_prefill(s, tok + TEXT, LATER, NULL));
        else
            ck_assert_ok(cb_session_decode(s, tok[(i * 13 + 5) % TOY_TEXT]));
        memcpy(out + (size_t)(i + 1) * n, cb_session_logits(s), n * sizeof *out);
    }
    cb_session_close(s);
    return out;
}

static int equal(struct cb_model *m, float *x, float *y)
{
    const int same = !memcmp(x, y, (STEPS + 1) * (size_t)m->hp.n_vocab * sizeof *x);
    free(x);
    free(y);
    return same;
}

static const struct {
    const char *family, *type;
} forms[] = {
    { "qwen2", "f16" },      { "llama", "f32" },      { "qwen2", "bf16" },
    { "llama", "q8_0" },     { "mistral", "f16" }, /* a sliding window */
    { "qwen2", "kivi4:32" }, { "llama", "kivi2:64" }, { "qwen2", "planes" },
    { "mistral", "planes" },
};
enum { N_FORM = sizeof forms / sizeof *forms };

/* With the full cache, a layer with a window drops what no query sees, and sums in another order.
 */
START_TEST(a_budget_that_holds_all_changes_no_bit)
{
    const struct tiny t = deep(forms[_i].family);
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    const int planes = !strcmp(forms[_i].type, "planes");
    const char *type = forms[_i].type, *all = m->hp.window || planes ? "sieve:budget=399" : "full";

    ck_assert(equal(m, converse(m, all, type, 0), converse(m, "sieve:budget=400", type, 0)));
    ck_assert(equal(m, converse(m, all, type, 0), converse(m, "sieve:recent=400", type, 0)));
    ck_assert(!equal(m, converse(m, all, type, 0), converse(m, "sieve:budget=20", type, 0)));
    if (planes) { /* all other policies refuse them */
        cb_model_close(m);
        return;
    }
    all = m->hp.window ? "quest:budget=399,dense=0" : "full";
    ck_assert(
        equal(m, converse(m, all, type, 0), converse(m, "quest:budget=400,dense=0", type, 0)));
    all = m->hp.window ? "infinigen:alpha=1e9,most=399" : "full";
    ck_assert(
        equal(m, converse(m, all, type, 0), converse(m, "infinigen:alpha=1e9,most=400", type, 0)));
    ck_assert(!equal(m, converse(m, "full", type, 0), converse(m, "quest:budget=48", type, 0)));
    cb_model_close(m);
}
END_TEST

START_TEST(threads_and_chunks_change_nothing)
{
    const struct tiny t = deep(forms[_i].family);
    struct cb_model *one = cb_toy_model(&t, "cpu", 1), *three = cb_toy_model(&t, "cpu", 3);
    static const char *const policy[] = { "sieve:budget=20,recent=10,dense=1",
                                          "quest:budget=64,page=10,dense=1",
                                          "quest:budget=64,dense=1,group=each",
                                          "infinigen:alpha=0.2,most=60,dense=1" };
    const char *type = forms[_i].type;

    for (int p = 0; p < (strcmp(type, "planes") ? 4 : 1); p++) {
        ck_assert(
            equal(one, converse(one, policy[p], type, 0), converse(three, policy[p], type, 0)));
        ck_assert(
            equal(one, converse(one, policy[p], type, 0), converse(three, policy[p], type, 77)));
    }
    cb_model_close(one);
    cb_model_close(three);
}
END_TEST

/* The first tokens do not count for the range of their block's sketch; those of other blocks do. */
START_TEST(first_tokens_count_for_no_range)
{
    const struct tiny t = deep("qwen2");
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    cb_session *s = open_session(m, "sieve:budget=20,recent=10,dense=1", "f16", 0);
    float *x = calloc((size_t)SKETCH_BLOCK * (size_t)m->hp.hd, sizeof *x);
    int n = 0;

    ck_assert_ok(
        cb_session_prefill(s, cb_toy_text(m), 150, NULL)); /* and then from a later block */
    ck_assert_ok(cb_session_prefill(s, cb_toy_text(m) + 150, TEXT - 150, NULL));
    for (int l = 0; l < s->bank.n_layer; l++) {
        const struct store *st = &s->bank.store[l];
        const size_t bytes = cb_sketch_bytes(st->sketch_bits, st->hd);
        uint8_t *want = calloc(bytes, 1);
        for (int at = 0; st->sketch_bits && at < st->sketched; at += SKETCH_BLOCK, n++) {
            ck_assert_int_gt(st->sketch_out, 0);
            for (int j = 0; j < SKETCH_BLOCK; j++)
                cb_store_get(st, s->dev, 0, 0, at + j, x + j * st->hd);
            s->dev->ops->sketch(s->dev, KV_F32, x, 1, st->hd, st->sketch_bits,
                                at ? 0 : st->sketch_out, want);
            ck_assert_msg(!memcmp(cb_store_sketch_at(st, 0, at), want, bytes), "layer %d, slot %d",
                          l, at);
        }
        free(want);
    }
    ck_assert_int_gt(n, 3);
    free(x);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Only layers that sketch hold more than the full cache, and they read less. */
START_TEST(holds_more_and_reads_less)
{
    const struct tiny t = deep("qwen2");
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    const char *const policy[] = { "full",
                                   "sieve:budget=20,recent=10",
                                   "sieve:budget=20,recent=10,dense=3",
                                   "quest:budget=48,dense=0",
                                   "quest:budget=48,dense=3",
                                   "infinigen:dense=1",
                                   "infinigen:dense=3" };
    struct cb_memory mem[7];

    for (int i = 0; i < 7; i++) {
        cb_session *s = open_session(m, policy[i], "f16", 0);
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), TEXT, NULL));
        ck_assert_ok(cb_session_decode(s, 3));
        cb_session_memory(s, &mem[i]);
        cb_session_close(s);
    }
    for (int i = 1; i < 7; i += 2) {
        ck_assert_uint_gt(mem[i].kv_bytes, mem[i + 1].kv_bytes);
        ck_assert_uint_lt(mem[i].kv_read_bytes_per_token, mem[i + 1].kv_read_bytes_per_token);
        ck_assert_uint_lt(mem[i + 1].kv_read_bytes_per_token, mem[0].kv_read_bytes_per_token);
    }
    cb_model_close(m);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    static const char *const bad[][2] = {
        { "sieve:budget=0", "must be" },     { "sieve:bits=3", "one of: 2 4" },
        { "sieve:dense=4", "has 4 layers" }, { "sieve:recent=0", "must be" },
        { "sieve:miss=1", "must be" },       { "sieve:budgt=3", "budget" },
        { "sieve:sink=-1", "must be" },      { "quest:budget=0", "must be" },
        { "quest:page=0", "must be" },       { "quest:dense=4", "has 4 layers" },
    };
    const struct tiny t = deep("qwen2");
    struct cb_model *m = cb_toy_model(&t, "cpu", 1);

    cb_toy_all_refused(m, bad, sizeof bad / sizeof *bad);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sieve");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, reads_what_scores_best, 0, 2);
    tcase_add_loop_test(c, reads_the_pages_with_the_largest_bounds, 0, 2);
    tcase_add_loop_test(c, misses_no_more_than_it_may, 0, 2);
    tcase_add_loop_test(c, a_budget_that_holds_all_changes_no_bit, 0, N_FORM);
    tcase_add_loop_test(c, threads_and_chunks_change_nothing, 0, N_FORM);
    tcase_add_test(c, first_tokens_count_for_no_range);
    tcase_add_test(c, holds_more_and_reads_less);
    tcase_add_test(c, bad_options_are_refused);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
