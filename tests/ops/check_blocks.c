/* SPDX-License-Identifier: MIT */
/* check_blocks.c - attention that skips blocks of entries, and the estimate of what the blocks
 * hold: the CPU device against the reference device, and against attention without blocks. */
#include "against_ref.h"
#include "device/prompt_blocks.h"
#include "device/sketch.h"

enum { BLOCK = KV_PREPACK, MAX_KV = 4 };

/* Queries of a prompt, and the entries of each KV head, the last ones of which are theirs */
struct input {
    struct kv_run run[MAX_HEAD], by_head[MAX_HEAD];
    char *k[MAX_KV], *v[MAX_KV];
    float *q;
    int n_kv, group, hd, n_tok, first, n, n_row, n_col; /* first: entry of the first query */
    enum kv_type type;
};

/* open_isa with the work space of sparse prompts */
static int open_blocks(int isa, int threads)
{
    if (!open_isa(isa, threads))
        return 0;
    if (dev->ops->reserve_blocks)
        ck_assert_int_ge(dev->ops->reserve_blocks(dev, MAX_HEAD, MAX_HD, MAX_CTX), 0);
    return 1;
}

static char *stored(enum kv_type t, int n, int hd)
{
    float *x = floats((size_t)n * hd);
    char *rows = cb_guarded(cb_kv_row_bytes(t, hd) * n);

    ref->ops->kv_encode(ref, t, x, n, hd, hd, rows);
    free(x);
    return rows;
}

static void make(struct input *in, int c)
{
    static const int group[] = { 7, 1, 2, 4, 3 };

    *in = (struct input){ .type = (enum kv_type)(c % KV_TYPE_COUNT), .n_kv = 1 + below(2) };
    in->hd = head_dims[below(10)];
    in->hd = in->type == KV_Q8_0 ? (in->hd + 31) / 32 * 32 : in->hd;
    in->group = group[below(5)];
    in->first = c % 3 ? below(700) : below(6) * BLOCK;
    in->n_tok = c % 4 ? 1 + below(300) : 1 + below(9);
    in->n = in->first + in->n_tok;
    in->n_col = (in->n + BLOCK - 1) / BLOCK;
    in->n_row = in->n_col - in->first / BLOCK;
    in->q = floats((size_t)in->n_tok * in->n_kv * in->group * in->hd);
    for (int i = 0; i < in->n_tok * in->n_kv * in->group * in->hd; i++)
        in->q[i] *= 4;
    for (int h = 0; h < in->n_kv; h++) {
        in->k[h] = stored(in->type, in->n, in->hd);
        in->v[h] = stored(in->type, in->n, in->hd);
        in->run[h] = (struct kv_run){ .k = in->k[h], .v = in->v[h], .n = in->n };
    }
    for (int h = 0; h < in->n_kv * in->group; h++)
        in->by_head[h] = in->run[h / in->group];
}

static void drop(struct input *in)
{
    for (int h = 0; h < in->n_kv; h++)
        free(in->k[h]), free(in->v[h]);
    free(in->q);
}

static struct attn whole(const struct input *in)
{
    const int n_head = in->n_kv * in->group;

    return (struct attn){ .n_tok = in->n_tok,
                          .n_head = n_head,
                          .n_kv = in->n_kv,
                          .hd = in->hd,
                          .scale = 1 / sqrtf((float)in->hd),
                          .causal = 1,
                          .type_k = in->type,
                          .type_v = in->type,
                          .run = in->run,
                          .q = in->q,
                          .q_stride = n_head * in->hd };
}

/* The same for each query head on its own, with blocks */
static struct attn blockwise(const struct input *in, const struct attn_blocks *b)
{
    struct attn a = whole(in);

    a.n_kv = a.n_head;
    a.run = in->by_head;
    a.blocks = b;
    return a;
}

static uint8_t *some_blocks(const struct input *in, int in_ten, struct attn_blocks *b)
{
    const int n_head = in->n_kv * in->group, n = n_head * in->n_row * in->n_col;
    uint8_t *reads = cb_guarded((size_t)n);

    for (int i = 0; i < n; i++)
        reads[i] = below(10) < in_ten;
    *b = (struct attn_blocks){ reads, in->first % BLOCK, in->n_row, in->n_col, 0 };
    return reads;
}

static float *attend(struct device *d, struct attn a, float **lse)
{
    a.out = poisoned((size_t)a.n_tok * a.n_head * a.hd);
    a.lse = *lse = poisoned((size_t)a.n_tok * a.n_head);
    d->ops->attention(d, &a, 1);
    return a.out;
}

START_TEST(skips_blocks)
{
    if (!open_blocks(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(48 / FEWER); c++) {
        struct input in;
        struct attn_blocks b;
        float *lse, *lse2, *out, *out2;
        uint8_t *reads;
        char what[80];
        make(&in, c);
        reads = some_blocks(&in, 1 + below(9), &b);
        out = attend(dev, blockwise(&in, &b), &lse);
        out2 = attend(ref, blockwise(&in, &b), &lse2);
        snprintf(what, sizeof what, "case %d %s n_tok %d first %d heads %d hd %d", c,
                 cb_kv_type[in.type].name, in.n_tok, in.first, in.n_kv * in.group, in.hd);
        same(what, out, out2, (size_t)in.n_tok * in.n_kv * in.group * in.hd, 2e-3f);
        same(what, lse, lse2, (size_t)in.n_tok * in.n_kv * in.group, 2e-3f);
        free(lse), free(lse2), free(out), free(out2), free(reads);
        drop(&in);
    }
}
END_TEST

/* Reading every block is attention without blocks, to the bit. */
START_TEST(all_blocks_are_everything)
{
    if (!open_blocks(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(40 / FEWER); c++) {
        struct input in;
        struct attn_blocks b;
        float *lse, *lse2, *out, *out2;
        uint8_t *reads;
        size_t n;
        make(&in, c);
        n = (size_t)in.n_tok * in.n_kv * in.group;
        reads = some_blocks(&in, 10, &b);
        out = attend(dev, blockwise(&in, &b), &lse);
        out2 = attend(dev, whole(&in), &lse2);
        ck_assert_msg(!memcmp(out, out2, n * in.hd * sizeof *out), "case %d", c);
        ck_assert_msg(!memcmp(lse, lse2, n * sizeof *lse), "case %d", c);
        free(lse), free(lse2), free(out), free(out2), free(reads);
        drop(&in);
    }
}
END_TEST

/* Each query has blocks of its own. What it reads has the bits that it has alone. */
START_TEST(blocks_of_each_query)
{
    if (!open_blocks(_i, 3))
        return;
    for (int c = 0; !dev->ops->memory && c < cb_test_cases(48 / FEWER); c++) {
        struct input in;
        struct attn_blocks b = { .each = 1 }, one;
        struct attn a;
        float *lse, *lse2, *out, *out2;
        uint8_t *reads;
        char what[80];
        size_t row;
        int i;
        make(&in, c);
        row = (size_t)in.n_kv * in.group * in.hd;
        reads = cb_guarded((size_t)in.n_kv * in.n_tok * in.n_col);
        for (i = 0; i < in.n_kv * in.n_tok * in.n_col; i++)
            reads[i] = below(10) < 1 + c % 9;
        b.reads = reads, b.n_row = in.n_tok, b.n_col = in.n_col;
        a = whole(&in);
        a.blocks = &b;
        a.prompt = 1;
        out = attend(dev, a, &lse);
        out2 = attend(ref, a, &lse2);
        snprintf(what, sizeof what, "case %d %s n_tok %d first %d heads %d hd %d", c,
                 cb_kv_type[in.type].name, in.n_tok, in.first, in.n_kv * in.group, in.hd);
        same(what, out, out2, in.n_tok * row, 2e-3f);
        same(what, lse, lse2, (size_t)in.n_tok * in.n_kv * in.group, 2e-3f);
        free(lse2), free(out2);
        i = below(in.n_tok);
        one = b;
        one.reads += (size_t)i * in.n_col; /* in the first row of n_row */
        for (int h = 0; h < in.n_kv; h++)
            in.run[h].n = in.first + i + 1;
        a.n_tok = 1;
        a.blocks = &one;
        a.q += (size_t)i * row;
        out2 = attend(dev, a, &lse2);
        ck_assert_msg(!memcmp(out + i * row, out2, row * sizeof *out), "%s: query %d", what, i);
        free(lse), free(lse2), free(out), free(out2), free(reads);
        drop(&in);
    }
}
END_TEST

/* ---- the estimate ---- */

static struct block_mass mass_of(const struct input *in, int stride)
{
    const struct attn a = whole(in);

    return (struct block_mass){ .n_tok = in->n_tok,
                                .n_head = a.n_head,
                                .n_kv = in->n_kv,
                                .hd = in->hd,
                                .first = in->first,
                                .stride = stride,
                                .scale = a.scale,
                                .type_k = in->type,
                                .run = in->run,
                                .q = in->q,
                                .q_stride = a.q_stride,
                                .n_row = in->n_row,
                                .n_col = in->n_col };
}

static float *estimate(struct device *d, const struct block_mass *form)
{
    struct block_mass m = *form;

    m.out = poisoned((size_t)m.n_head * m.n_row * m.n_col);
    d->ops->block_mass(d, &m);
    return m.out;
}

START_TEST(mass_of_groups)
{
    if (!open_blocks(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(40 / FEWER); c++) {
        struct input in;
        struct block_mass m;
        float *got, *want, sum = 0;
        char what[80];
        make(&in, c);
        m = mass_of(&in, 2 << below(4));
        got = estimate(dev, &m);
        want = estimate(ref, &m);
        snprintf(what, sizeof what, "case %d %s n_tok %d first %d heads %d/%d hd %d stride %d", c,
                 cb_kv_type[in.type].name, in.n_tok, in.first, m.n_head, m.n_kv, in.hd, m.stride);
        same(what, got, want, (size_t)m.n_head * m.n_row * m.n_col, 2e-3f);
        for (int i = 0; i < m.n_head * m.n_row * m.n_col; i++)
            sum += got[i];
        ck_assert_msg(
            fabsf(sum / (float)(m.n_head * ((in.n - 1) / m.stride - in.first / m.stride + 1)) - 1) <
                1e-4f,
            "%s: groups weigh %g", what, (double)sum);
        free(got), free(want);
        drop(&in);
    }
}
END_TEST

/* Prepacked keys come back rounded, and neither threads nor chunks change a bit. */
START_TEST(mass_of_prepacked_keys_and_chunks)
{
    if (!open_blocks(_i, 1))
        return;
    for (int c = 0; c < cb_test_cases(10); c++) {
        struct input in;
        struct block_mass m, half;
        float *got, *want, *rest, *step[MAX_KV];
        make(&in, 1);
        if (!dev->ops->can_prepack(dev, in.type, in.type, in.hd) || in.first < BLOCK) {
            drop(&in);
            continue;
        }
        m = mass_of(&in, 8);
        want = estimate(dev, &m);
        for (int h = 0; h < in.n_kv; h++) {
            const int n = in.first / BLOCK;
            step[h] = floats((size_t)n * BLOCK);
            dev->ops->prepack(dev, in.type, 0, in.hd, in.k[h], n, step[h]);
            in.run[h].prepacked = n * BLOCK;
            in.run[h].step_k = step[h];
        }
        got = estimate(dev, &m);
        same("prepacked", got, want, (size_t)m.n_head * m.n_row * m.n_col, 2e-3f);
        half = m; /* the last block of queries alone */
        half.first = (in.n - 1) / BLOCK * BLOCK;
        half.n_row = 1;
        half.first = half.first > m.first ? half.first : m.first;
        half.n_tok = in.n - half.first;
        half.q += (size_t)(half.first - m.first) * m.q_stride;
        rest = estimate(dev, &half);
        for (int h = 0; h < m.n_head; h++)
            ck_assert(!memcmp(rest + (size_t)h * m.n_col,
                              got + ((size_t)h * m.n_row + m.n_row - 1) * m.n_col,
                              m.n_col * sizeof *got));
        for (int h = 0; h < in.n_kv; h++)
            free(step[h]);
        free(got), free(want), free(rest);
        drop(&in);
    }
}
END_TEST

/* ---- sketched keys ---- */

/* A token's sketched key -> y[hd] */
static void sketched_key(const uint8_t *block, int bits, int hd, int token, double *y)
{
    float step[SKETCH_MAX_HD], min[SKETCH_MAX_HD];
    int shift;

    cb_sketch_steps(hd, block, step, min);
    for (int c = 0; c < hd; c++) {
        const size_t at = cb_sketch_at(bits, hd, token, c, &shift);
        const int code = block[(size_t)cb_sketch_pad(hd) * 4 + at] >> shift & ((1 << bits) - 1);
        y[c] = (double)min[c] + code * (double)step[c];
    }
}

/* The mean over the queries of a row that are estimated, in doubles. Weights of the op are rounded
 * to 1/32 of a power of 2, and queries to bytes. */
static void mass_of_row(const struct block_mass *m, int h, int row, double *mass)
{
    const uint8_t *sketch = m->sketch + (size_t)(h / (m->n_head / m->n_kv)) * m->head_bytes;
    const int own = m->first / BLOCK + row;
    int i = (own + 1) * BLOCK - 1 - m->first;

    memset(mass, 0, (size_t)m->n_col * sizeof *mass);
    for (i = i < m->n_tok ? i : m->n_tok - 1; i >= 0 && m->first + i >= own * BLOCK;
         i -= m->stride) {
        double e[16] = { 0 }, sum = 0, key[SKETCH_MAX_HD];
        for (int j = 0; j < own * BLOCK; j++) {
            const uint8_t *block = sketch + (size_t)(j / BLOCK) * cb_sketch_bytes(m->bits, m->hd);
            double x = 0;
            sketched_key(block, m->bits, m->hd, j % BLOCK, key);
            for (int c = 0; c < m->hd; c++)
                x += (double)m->q[(size_t)i * m->q_stride + h * m->hd + c] * key[c];
            x = exp(x * (double)m->scale);
            e[j / BLOCK] += x;
            sum += x;
        }
        for (int b = 0; b < own; b++)
            mass[b] += e[b] / sum;
    }
}

START_TEST(mass_of_sketches)
{
    if (!open_blocks(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(16 / FEWER); c++) {
        struct input in;
        struct block_mass m;
        float *got, *want;
        uint8_t *sketch;
        int n;
        make(&in, c);
        n = in.n / BLOCK;
        m = mass_of(&in, 1 + below(60));
        m.bits = c % 3 ? 2 : 4;
        m.head_bytes = (size_t)n * cb_sketch_bytes(m.bits, in.hd) + 64;
        m.sketch = sketch = calloc((size_t)in.n_kv, m.head_bytes);
        for (int h = 0; h < in.n_kv && n; h++)
            ref->ops->sketch(ref, in.type, in.k[h], n, in.hd, m.bits, 4, sketch + h * m.head_bytes);
        got = estimate(dev, &m);
        want = estimate(ref, &m);
        ck_assert(!memcmp(got, want, (size_t)m.n_head * m.n_row * m.n_col * sizeof *got));
        for (int r = 0; r < m.n_head * m.n_row; r++) {
            double mass[16];
            mass_of_row(&m, r / m.n_row, r % m.n_row, mass);
            for (int b = 0; b < m.n_col; b++)
                ck_assert_msg(fabs((double)got[r * m.n_col + b] - mass[b]) <= 0.05 * (1 + mass[b]),
                              "case %d, head %d, row %d, block %d: %g, should be %g", c,
                              r / m.n_row, r % m.n_row, b, (double)got[r * m.n_col + b], mass[b]);
        }
        free(got), free(want), free(sketch);
        drop(&in);
    }
}
END_TEST

/* A group of two queries meets their own keys, one group of keys before them, and 63 of zeros. */
START_TEST(mass_by_hand)
{
    static const float q2[2][2] = { { 0.5f, 0.5f }, { 1, -1 } };
    static const float k2[4][2] = { { 0.2f, 0.1f }, { 0.4f, -0.3f }, { 1, 0 }, { -0.5f, 0.5f } };
    const int hd = 32, n = 130;
    float *q = floats(2 * (size_t)hd), *k = floats((size_t)n * hd), *out;
    struct kv_run run = { .k = k, .v = k, .n = n };
    const struct block_mass m = { .n_tok = 2,
                                  .n_head = 1,
                                  .n_kv = 1,
                                  .hd = hd,
                                  .first = 128,
                                  .stride = 2,
                                  .scale = 1 / sqrtf(2),
                                  .run = &run,
                                  .q = q,
                                  .q_stride = hd,
                                  .n_row = 1,
                                  .n_col = 2 };
    /* (1, -1) (0.2, 0.1) + (0.5, 0.5) (0.4, -0.3) = 0.15; (1, -1) (1, 0) + ... = 1 */
    const double e0 = exp(0.15 / (2 * sqrt(2))), e1 = exp(1 / (2 * sqrt(2)));

    if (!open_blocks(_i, 1))
        return;
    memset(q, 0, 2 * (size_t)hd * sizeof *q);
    memset(k, 0, (size_t)n * hd * sizeof *k);
    for (int i = 0; i < 4; i++)
        memcpy(k + (i < 2 ? i : 126 + i) * hd, k2[i], sizeof k2[i]);
    for (int i = 0; i < 2; i++)
        memcpy(q + i * hd, q2[i], sizeof q2[i]);
    out = estimate(dev, &m);
    ck_assert(fabs((double)out[0] - (e0 + 63) / (e0 + 63 + e1)) < 1e-6);
    ck_assert(fabs((double)out[1] - e1 / (e0 + 63 + e1)) < 1e-6);
    free(q), free(k), free(out);
}
END_TEST

/* ---- lines ---- */

START_TEST(lines)
{
    if (!open_blocks(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(24 / FEWER); c++) {
        struct input in;
        struct line_sums s;
        float *column[2], *diagonal[2];
        char what[80];
        int n_head;
        make(&in, c);
        n_head = in.n_kv * in.group;
        s = (struct line_sums){ .n_tok =
                                    in.n_tok < LINE_QUERIES ? in.n_tok : 1 + below(LINE_QUERIES),
                                .n_head = n_head,
                                .n_kv = in.n_kv,
                                .hd = in.hd,
                                .scale = 1 / sqrtf((float)in.hd),
                                .softcap = c % 3 ? 0 : 5,
                                .type_k = in.type,
                                .run = in.run,
                                .q = in.q,
                                .q_stride = n_head * in.hd,
                                .out_stride = in.n + 7 };
        for (int d = 0; d < 2; d++) {
            struct device *on = d ? ref : dev;
            s.column = column[d] = floats((size_t)n_head * s.out_stride);
            s.diagonal = diagonal[d] = floats((size_t)n_head * s.out_stride);
            on->ops->line_sums(on, &s);
        }
        for (int h = 0; h < n_head; h++) {
            const size_t at = (size_t)h * s.out_stride;
            snprintf(what, sizeof what, "case %d %s n_tok %d n %d head %d/%d hd %d", c,
                     cb_kv_type[in.type].name, s.n_tok, in.n, h, n_head, in.hd);
            same(what, column[0] + at, column[1] + at, (size_t)in.n, 2e-3f);
            same(what, diagonal[0] + at, diagonal[1] + at, (size_t)in.n, 2e-3f);
        }
        for (int d = 0; d < 2; d++)
            free(column[d]), free(diagonal[d]);
        drop(&in);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("blocks");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, skips_blocks, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, blocks_of_each_query, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, all_blocks_are_everything, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, mass_of_groups, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, mass_of_prepacked_keys_and_chunks, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, mass_of_sketches, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, lines, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, mass_by_hand, ISA_FROM, ISA_TO);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
