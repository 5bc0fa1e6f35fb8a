/* SPDX-License-Identifier: MIT */
/* index_cascade.c - scores of those of a trained selector's keys that can be among the k best, for
 * less than the products of all keys with all heads. All keys meet one vector that stands for all
 * heads (index_line.c), by the upper 4 bits of their numbers. Then the heads come that weigh most,
 * while another vector stands for the others: this tells how far a key can get. Keys that stay
 * below a floor get no further. Those that do become strips, of all 8 bits, and meet the next
 * heads.
 *
 * The floors come from a sample: 32 keys of every n-th block meet all heads. Those of them that are
 * among the best show what the best had at each stage: the floor is 3.5 standard deviations below
 * their mean, or their least. The sample depends on the query and its keys alone, so a query gets
 * the same scores beside any others and on any number of threads. */
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/ints.h"
#include "cpu/kern.h"
#include "index_scan.h"

enum {
    HELD = 128,              /* keys that meet heads at once */
    ROW = HELD + STRIP_KEYS, /* lines of them begin in different sets of the first cache */
    LEAST_TILES = 4,         /* fewer heads are not worth it */
    LEAST_KEYS = 8,          /* times k */
    GROUP = 16,              /* sampled blocks of an item */
    RUN = 16,                /* blocks of an item */
    SOME = 4,                /* blocks that meet the line before those that are left meet heads */
    LINES = 32,              /* of a cache, prefetched beside a strip's products */
};

/* A query's */
struct floors {
    float at[STRIP_STAGES - 1]; /* a key that is below at[g] after stage g is left out */
    atomic_int n;               /* keys that met all heads */
    struct strip_line line[STRIP_STAGES - 1]; /* of the heads after stage g */
};

_Static_assert(sizeof(struct floors) <= STRIP_OWN, "the work space of a query");

struct job {
    struct device *d;
    const struct kern_index *k;
    const struct index_scan *s;
    struct index_scan_work w;
    struct floors *floors; /* [n_tok] */
};

static int seen_by(const struct index_scan *s, int t)
{
    return s->n_key ? s->n_key[t] : s->n;
}

/* Does query t leave keys out? */
static int cascades(const struct index_scan *s, int t)
{
    return s->k > 0 && (s->n_head - 1) / STRIP_HEADS + 1 >= LEAST_TILES && s->hd <= STRIP_LINE_HD &&
           seen_by(s, t) / LEAST_KEYS >= s->k;
}

static int any_cascades(const struct index_scan *s)
{
    int any = 0;

    for (int t = 0; t < s->n_tok; t++)
        any |= cascades(s, t);
    return any;
}

/* Tiles that have been summed after stage i: none, a quarter, half of them, all */
static int end_of(const struct strip_query *q, int i)
{
    return i ? q->n_tile >> (STRIP_STAGES - 1 - i) : 0;
}

static int begin_of(const struct strip_query *q, int i)
{
    return i ? end_of(q, i - 1) : 0;
}

/* ---- the sample ---- */

/* Which of its four parts of 32 keys the i-th sampled block contributes */
static int part_of(int i)
{
    return i % (STRIP_BLOCK / STRIP_SAMPLE);
}

static void sample_block(const struct job *job, int i)
{
    const struct index_scan *s = job->s;
    const char *block = cb_index_block(s, i * job->w.every);
    const int from = part_of(i) * STRIP_SAMPLE;
    const float *step = cb_strip_steps(s->hd, block) + from;
    const uint8_t *upper = (const uint8_t *)block + (size_t)from * cb_strip_half(s->hd);
    struct strip_room room;
    const struct strips x = cb_index_strips(job->k, s->hd, block, from, &room);

    for (int t = 0; t < s->n_tok; t++) {
        const struct strip_query q = cb_index_query(s, t);
        const struct strip_line *line = job->floors[t].line;
        float sum[STRIP_SAMPLE] = { 0 }, all[STRIP_SAMPLE];
        for (int g = 0; cascades(s, t) && g < STRIP_STAGES; g++) {
            float *y = job->w.sample + (size_t)(t * STRIP_STAGES + g) * (size_t)job->w.n_sample +
                       (size_t)i * STRIP_SAMPLE;
            if (g)
                job->k->add(&q, begin_of(&q, g), end_of(&q, g), &x, sum);
            if (g == 0)
                job->k->first(&line[0], q.quads, upper, STRIP_SAMPLE, all);
            else if (g < STRIP_STAGES - 1)
                job->k->line(&line[g], q.quads, &x, sum, all);
            for (int j = 0; j < STRIP_SAMPLE; j++)
                y[j] = (g < STRIP_STAGES - 1 ? all[j] : sum[j]) * step[j];
        }
    }
}

static void sample_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const int to = min_int(job->w.n_sample / STRIP_SAMPLE, (item + 1) * GROUP);

    (void)thread;
    for (int i = item * GROUP; i < to; i++)
        sample_block(job, i);
}

/* Sampled keys among the first n */
static int seen_of(const struct job *job, int n)
{
    const int last = (n - 1) / STRIP_BLOCK, i = last / job->w.every;
    const int left =
        last % job->w.every ? STRIP_SAMPLE : n - last * STRIP_BLOCK - part_of(i) * STRIP_SAMPLE;

    return i * STRIP_SAMPLE + max_int(0, min_int(left, STRIP_SAMPLE));
}

/* The floor of what the best[m] of the sample had */
static float floor_of(const float *y, const int32_t *best, int m)
{
    double sum = 0, squares = 0, mean;
    float least = INFINITY;

    for (int j = 0; j < m; j++) {
        const float x = y[best[j]];
        sum += (double)x;
        squares += (double)x * (double)x;
        least = x < least ? x : least;
    }
    mean = sum / m;
    return fminf(least, (float)(mean - 3.5 * sqrt(fmax(0, squares / m - mean * mean))));
}

static void set_floors(const struct job *job, int t)
{
    const int n = seen_by(job->s, t);
    const float *y = job->w.sample + (size_t)(t * STRIP_STAGES) * (size_t)job->w.n_sample;
    const int seen = seen_of(job, n);
    const int m = min_int(seen, (int)((int64_t)seen * job->s->k / n) + 1);

    for (int g = 0; g < STRIP_STAGES - 1; g++)
        job->floors[t].at[g] = -INFINITY;
    if (!cascades(job->s, t))
        return;
    cb_cpu_topk(job->d, y + (size_t)(STRIP_STAGES - 1) * (size_t)job->w.n_sample, seen, m,
                job->w.best);
    for (int g = 0; g < STRIP_STAGES - 1; g++)
        job->floors[t].at[g] = floor_of(y + (size_t)g * (size_t)job->w.n_sample, job->w.best, m);
}

/* ---- all keys ---- */

/* Keys that wait for the heads of a stage */
struct held {
    int n;
    int32_t at[HELD];
    float sum[HELD];
};

struct pass {
    const struct kern_index *k;
    const struct index_scan *s;
    const struct floors *floors;
    struct strip_query q;
    float *out;
    int n, n_out; /* keys that the query sees, and those that met all heads */
    int n_left;   /* keys of some blocks that reach the line's floor */
    int32_t left[SOME * STRIP_BLOCK + STRIP_KEYS];
    struct held held[STRIP_STAGES - 2]; /* for stages 2.. */
    int ahead;                          /* the next block to be prefetched, */
    size_t ahead_at;                    /* from this byte on */
};

/* Prefetches n lines of what the line meets, in blocks before `end`. The processor's own prefetcher
 * stops at each block, and waits while keys meet heads. */
static void look_ahead(struct pass *x, int end, int n)
{
    const size_t bytes = cb_strip_lower(x->s->hd); /* upper bits and steps */

    while (n > 0 && x->ahead < end) {
        const char *block = cb_index_block(x->s, x->ahead);
        for (; n > 0 && x->ahead_at < bytes; x->ahead_at += 64, n--)
            __builtin_prefetch(block + x->ahead_at);
        if (x->ahead_at >= bytes) {
            x->ahead_at = 0;
            x->ahead++;
        }
    }
}

/* Keys of blocks, in strips one beside the other, and their steps */
struct opened {
    float step[HELD];
    _Alignas(64) char key[STRIP_LINE_HD / 4][ROW * 4];
};

/* Keys at[n], n up to HELD, become whole pairs of strips, the last of which repeat a key. */
static struct strips open_keys(struct pass *x, const int32_t *at, int n, int end, struct opened *o)
{
    const int hd = x->s->hd, pairs = (n - 1) / (2 * STRIP_KEYS) + 1;
    const size_t half = cb_strip_half(hd), lower = cb_strip_lower(hd);

    for (int j = 0; j < 2 * pairs * STRIP_KEYS; j += STRIP_KEYS) {
        const uint8_t *key[STRIP_KEYS];
        for (int i = 0; i < STRIP_KEYS; i++) {
            const uint32_t t = (uint32_t)at[min_int(j + i, n - 1)];
            const char *block = cb_index_block(x->s, (int)(t / STRIP_BLOCK));
            key[i] = (const uint8_t *)block + (size_t)(t % STRIP_BLOCK) * half;
            o->step[j + i] = cb_strip_steps(hd, block)[t % STRIP_BLOCK];
        }
        x->k->open(key, lower, x->q.quads, &o->key[0][j * 4], sizeof o->key[0]);
        look_ahead(x, end, LINES);
    }
    return (struct strips){ o->key[0], sizeof o->key[0], STRIP_KEYS * 4, 2 * pairs };
}

/* Keys at[n], n up to HELD, that the heads before have given sum[] meet the heads of a stage. Those
 * that can still be among the best wait for the next one's. What the line meets before block `end`
 * is prefetched meanwhile. */
static void meet_heads(struct pass *x, int stage, const int32_t *at, float *sum, int n, int end)
{
    struct held *h = &x->held[stage - 1]; /* for the next stage */
    struct opened o;
    const struct strips y = open_keys(x, at, n, end, &o);
    float all[HELD];
    int32_t left[HELD + STRIP_KEYS];
    int m;

    x->k->add(&x->q, begin_of(&x->q, stage), end_of(&x->q, stage), &y, sum);
    if (stage == STRIP_STAGES - 1) {
        for (int j = 0; j < n; j++)
            x->out[at[j]] = sum[j] * o.step[j];
        x->n_out += n;
        return;
    }
    x->k->line(&x->floors->line[stage], x->q.quads, &y, sum, all);
    m = x->k->reach(all, o.step, n, x->floors->at[stage], 0, left);
    for (int i = 0; i < m; i++) {
        h->at[h->n] = at[left[i]];
        h->sum[h->n++] = sum[left[i]];
        if (h->n == HELD) {
            h->n = 0;
            meet_heads(x, stage + 1, h->at, h->sum, HELD, end);
        }
    }
}

/* Of block b, keys that reach the floor are left, and their lower bits are prefetched. */
static void meet_line(struct pass *x, int b)
{
    const int hd = x->s->hd, n = min_int(STRIP_BLOCK, x->n - b * STRIP_BLOCK);
    const char *block = cb_index_block(x->s, b), *lower = block + cb_strip_lower(hd);
    const size_t half = cb_strip_half(hd);
    int32_t *left = x->left + x->n_left;
    float all[STRIP_BLOCK];

    for (int j = 0; j < STRIP_BLOCK; j++)
        x->out[b * STRIP_BLOCK + j] = -INFINITY;
    if (n <= 0)
        return;
    x->k->first(&x->floors->line[0], x->q.quads, (const uint8_t *)block, STRIP_BLOCK, all);
    x->n_left +=
        x->k->reach(all, cb_strip_steps(hd, block), n, x->floors->at[0], b * STRIP_BLOCK, left);
    for (; left < x->left + x->n_left; left++)
        __builtin_prefetch(lower + (size_t)(*left % STRIP_BLOCK) * half);
}

/* Blocks from..to-1, of an item that ends before block `end` */
static void some_blocks(struct pass *x, int from, int to, int end)
{
    const int next = min_int(end, to + SOME);

    x->n_left = 0;
    for (int b = from; b < to; b++) {
        look_ahead(x, min_int(end, b + 2), INT_MAX);
        meet_line(x, b);
    }
    for (int i = 0; i < x->n_left; i += HELD) {
        float sum[HELD] = { 0 };
        meet_heads(x, 1, x->left + i, sum, min_int(HELD, x->n_left - i), next);
    }
}

static void scan_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct index_scan *s = job->s;
    const int from = item * RUN, to = min_int((s->n - 1) / STRIP_BLOCK + 1, from + RUN);
    struct pass x = { .k = job->k, .s = s };

    (void)thread;
    for (int t = 0; t < s->n_tok; t++) {
        x.q = cb_index_query(s, t);
        x.floors = &job->floors[t];
        x.out = s->out + (size_t)t * s->out_stride;
        x.n = seen_by(s, t);
        x.n_out = 0;
        x.ahead = from;
        for (int b = from; b < to; b += SOME)
            some_blocks(&x, b, min_int(to, b + SOME), to);
        for (int g = 2; g < STRIP_STAGES; g++) {
            struct held *h = &x.held[g - 2];
            if (h->n)
                meet_heads(&x, g, h->at, h->sum, h->n, to);
            h->n = 0;
        }
        atomic_fetch_add_explicit(&job->floors[t].n, x.n_out, memory_order_relaxed);
    }
}

/* ---- the op ---- */

static void open_item(void *ctx, int t, int thread)
{
    const struct job *job = ctx;
    struct strip_query q;
    int from[STRIP_STAGES - 1];

    (void)thread;
    cb_index_open_query(job->s, t, &q);
    memset(job->floors[t].line, 0, sizeof job->floors[t].line);
    if (!cascades(job->s, t))
        return;
    for (int g = 0; g < STRIP_STAGES - 1; g++)
        from[g] = end_of(&q, g);
    cb_index_lines(job->k, job->s, &q, seen_by(job->s, t), from, STRIP_STAGES - 1,
                   job->floors[t].line);
}

static void scan_best(struct job *job)
{
    const struct index_scan *s = job->s;
    struct par *par = job->d->par;

    cb_par_for(par, (job->w.n_sample / STRIP_SAMPLE - 1) / GROUP + 1, sample_item, job);
    for (int t = 0; t < s->n_tok; t++) {
        atomic_init(&job->floors[t].n, 0);
        set_floors(job, t);
    }
    cb_par_for(par, (s->n - 1) / STRIP_BLOCK / RUN + 1, scan_item, job);
    for (int t = 0; t < s->n_tok; t++)
        if (atomic_load(&job->floors[t].n) < min_int(s->k, seen_by(s, t)))
            cb_index_scan_all(job->d, s, t, 1); /* the sample was not like the others */
}

void cb_cpu_index_scan(struct device *d, const struct index_scan *s)
{
    struct job job = { .d = d, .k = cb_cpu_vec(d)->index, .s = s };

    if (s->n < 1)
        return;
    cb_index_scan_bytes(s->work, s->n_tok, s->n_head, s->hd, s->n, s->k, &job.w);
    job.floors = job.w.own;
    cb_par_for(d->par, s->n_tok, open_item, &job);
    if (any_cascades(s))
        scan_best(&job);
    else
        cb_index_scan_all(d, s, 0, s->n_tok);
}
