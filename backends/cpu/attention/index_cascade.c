/* SPDX-License-Identifier: MIT */
/* index_cascade.c - scores of those of a trained selector's keys that can be among the k best, for
 * less than the products of all keys with all heads. All keys meet one vector that stands for all
 * heads (index_line.c). Then the heads come that weigh most, while another vector stands for the
 * others: this tells how far a key can get. Keys that stay below a floor get no further. Those that
 * do are packed into strips again, and meet the next heads.
 *
 * The floors come from a sample: 32 keys of every n-th block meet all heads. Those of them that are
 * among the best show what the best had at each stage: the floor is 3.5 standard deviations below
 * their mean, or their least. The sample depends on the query and its keys alone, so a query gets
 * the same scores beside any others and on any number of threads. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/ints.h"
#include "cpu/kern.h"
#include "index_scan.h"

enum {
    HELD = 128,              /* most keys that wait for the next heads */
    ROW = HELD + STRIP_KEYS, /* lines of them begin in different sets of the first cache */
    LEAST_TILES = 4,         /* fewer heads are not worth it */
    LEAST_KEYS = 8,          /* times k */
    GROUP = 16,              /* sampled blocks of an item */
    RUN = 8,                 /* blocks of an item */
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

static const char *block_at(const struct index_scan *s, int b)
{
    return (const char *)s->keys + (size_t)b * cb_strip_bytes(s->hd);
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
    const char *block = block_at(s, i * job->w.every);
    const float *step = cb_strip_steps(s->hd, block) + part_of(i) * STRIP_SAMPLE;
    const char *at = block + (size_t)(part_of(i) * STRIP_SAMPLE) * (size_t)cb_strip_pad(s->hd);
    const struct strips x = cb_index_strips(s->hd, at, STRIP_SAMPLE / STRIP_KEYS);

    for (int t = 0; t < s->n_tok; t++) {
        const struct strip_query q = cb_index_query(s, t);
        const struct strip_line *line = job->floors[t].line;
        float sum[STRIP_SAMPLE] = { 0 }, all[STRIP_SAMPLE];
        for (int g = 0; cascades(s, t) && g < STRIP_STAGES; g++) {
            float *y = job->w.sample + (size_t)(t * STRIP_STAGES + g) * (size_t)job->w.n_sample +
                       (size_t)i * STRIP_SAMPLE;
            job->k->add(&q, begin_of(&q, g), end_of(&q, g), &x, sum);
            if (g < STRIP_STAGES - 1)
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

/* Keys that wait for the heads of a stage, side by side */
struct held {
    int n;
    int32_t at[ROW]; /* their places in `out` */
    float sum[ROW], step[ROW];
    _Alignas(64) char key[STRIP_LINE_HD / 4][ROW * 4];
};

struct pass {
    const struct kern_index *k;
    const struct floors *floors;
    struct strip_query q;
    float *out;
    int n, n_out;            /* keys that the query sees, and those of them that met all heads */
    float none[STRIP_BLOCK]; /* 0 */
    struct held held[STRIP_STAGES - 1];
};

static void go_on(struct pass *x, int stage);

/* A strip's keys at[] with these sums continue to a stage if what they are guessed to get, `all`,
 * reaches its floor. */
static void hold(struct pass *x, int stage, const struct strips *strip, const int32_t *at,
                 const float *sum, const float *all, const float *step)
{
    struct held *h = &x->held[stage - 1];
    const unsigned keys = x->k->above(all, step, x->floors->at[stage - 1]);

    if (!keys)
        return;
    x->k->pack(strip, x->q.quads, keys, &h->key[0][h->n * 4], sizeof h->key[0]);
    for (unsigned left = keys; left; left &= left - 1, h->n++) {
        const int j = __builtin_ctz(left);
        h->at[h->n] = at[j];
        h->sum[h->n] = sum[j];
        h->step[h->n] = step[j];
    }
    if (h->n > HELD - STRIP_KEYS)
        go_on(x, stage);
}

/* The last keys of a strip that is not full are none. */
static void end_strip(struct held *h)
{
    for (int j = h->n; j % STRIP_KEYS; j++) {
        h->at[j] = 0;
        h->sum[j] = h->step[j] = NAN;
    }
}

/* The keys that wait meet the heads of the stage. */
static void go_on(struct pass *x, int stage)
{
    struct held *h = &x->held[stage - 1];
    const int n = h->n, pairs = (n + 2 * STRIP_KEYS - 1) / (2 * STRIP_KEYS);
    struct strips y = { h->key[0], sizeof h->key[0], STRIP_KEYS * 4, 2 * pairs, 0 };
    float all[ROW];

    x->k->add(&x->q, begin_of(&x->q, stage), end_of(&x->q, stage), &y, h->sum);
    end_strip(h);
    h->n = 0;
    if (stage == STRIP_STAGES - 1) {
        for (int j = 0; j < n; j++) {
            x->out[h->at[j]] = h->sum[j] * h->step[j];
            x->n_out += h->at[j] < x->n;
        }
        return;
    }
    x->k->line(&x->floors->line[stage], x->q.quads, &y, h->sum, all);
    for (int j = 0; j < n; j += STRIP_KEYS, y.at += STRIP_KEYS * 4)
        hold(x, stage + 1, &y, h->at + j, h->sum + j, all + j, h->step + j);
}

static void first_stage(struct pass *x, const struct index_scan *s, int b)
{
    const char *block = block_at(s, b);
    const float *step = cb_strip_steps(s->hd, block);
    struct strips y = cb_index_strips(s->hd, block, STRIP_BLOCK / STRIP_KEYS);
    float all[STRIP_BLOCK];
    int32_t at[STRIP_KEYS];

    y.ahead = cb_strip_bytes(s->hd); /* the next block's */
    x->k->line(&x->floors->line[0], x->q.quads, &y, x->none, all);
    for (int j = 0; j < STRIP_BLOCK; j++)
        x->out[b * STRIP_BLOCK + j] = -INFINITY;
    for (int j = max_int(0, x->n - b * STRIP_BLOCK); j < STRIP_BLOCK; j++)
        all[j] = NAN; /* not seen: no floor is reached */
    for (int j = 0; j < STRIP_BLOCK; j += STRIP_KEYS, y.at += y.next) {
        for (int i = 0; i < STRIP_KEYS; i++)
            at[i] = b * STRIP_BLOCK + j + i;
        hold(x, 1, &y, at, x->none, all + j, step + j);
    }
}

static void scan_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct index_scan *s = job->s;
    const int from = item * RUN, to = min_int((s->n - 1) / STRIP_BLOCK + 1, from + RUN);
    struct pass x;

    (void)thread;
    memset(&x, 0, sizeof x);
    x.k = job->k;
    for (int t = 0; t < s->n_tok; t++) {
        x.q = cb_index_query(s, t);
        x.floors = &job->floors[t];
        x.out = s->out + (size_t)t * s->out_stride;
        x.n = seen_by(s, t);
        x.n_out = 0;
        for (int b = from; b < to; b++)
            first_stage(&x, s, b);
        for (int g = 1; g < STRIP_STAGES; g++)
            go_on(&x, g);
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
