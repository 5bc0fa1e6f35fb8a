/* SPDX-License-Identifier: MIT */
/* gpu_attention.c - attention and scores on an accelerator. Rows of the bank are read from the
 * mirror. Entries that are not there are left to the CPU, which attends to them meanwhile; the two
 * parts are joined by their log-sum-exp. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "gpu.h"
#include "gpu_runs.h"

enum { NQ = 8, NB = 64, SPLIT = 1024, AT_ONCE = 16 };
enum { MMA_ITEMS = 128, MMA_MOST_HD = 256 };
enum { PROMPT_SPLIT = 2048, PROMPT_FEW_HEADS = 16, PROMPT_WINDOW = 4096 };
/* attend_few.cl: entries at a time, of a warp and of its group; SMs of a large device */
enum { FEW_AT_ONCE = 16, FEW_SPLIT = 64, FEW_DEVICE = 132 };
enum { MOST_MISSED = 3 }; /* tokens before a note */

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

static int64_t q_span(const struct attn *a)
{
    return (int64_t)(a->n_tok - 1) * a->q_stride + (int64_t)a->n_head * a->hd;
}

static struct gpu_program *program(struct gpu *g, const struct attn *a)
{
    struct gpu_options o = { .type = (int)a->type_k, .type_v = (int)a->type_v, .hd = a->hd };

    for (int h = 0; h < a->n_kv; h++)
        o.kivi |= a->run[h].kivi != NULL;
    return cb_gpu_program(g, GPU_ATTENTION, o);
}

/* ---- on the CPU ---- */

/* 1: the CPU attends, whatever the device has */
static int is_for_host(const struct attn *a)
{
    return a->n_tok > 0 && a->blocks;
}

static void queries_home(struct gpu *g, const struct attn *a, struct attn *host)
{
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    float *q = cb_gpu_host_for(g, (float *)(uintptr_t)a->q, floats(q_span(a)));

    if (q && q != a->q)
        cb_gpu_fetch(g, q, a->q, floats(q_span(a)));
    *host = *a;
    host->q = q;
    host->out = cb_gpu_host_for(g, a->out, floats(rows * a->hd));
    host->lse = cb_gpu_host_for(g, a->lse, floats(rows));
}

static void results_on(struct gpu *g, const struct attn *a, const struct attn *host)
{
    const int64_t rows = (int64_t)a->n_tok * a->n_head;

    cb_gpu_from_host(g, a->out, host->out, floats(rows * a->hd));
    cb_gpu_from_host(g, a->lse, host->lse, floats(rows));
    if (host->q != a->q)
        free((void *)(uintptr_t)host->q);
    for (int h = 0; !g->status && h < a->n_kv; h++)
        g->traffic.host_rows += (uint64_t)a->run[h].n;
}

/* The whole of n <= AT_ONCE calls whose rows the device does not have */
static void attend_on_host(struct gpu *g, const struct attn *a, int n)
{
    struct attn host[AT_ONCE];

    for (int i = 0; i < n; i++)
        queries_home(g, &a[i], &host[i]);
    cb_gpu_found_home(g); /* waits */
    if (!g->status)
        g->host.ops->attention(&g->host, host, n);
    for (int i = 0; i < n; i++)
        results_on(g, &a[i], &host[i]);
}

/* Some entries of each run, one piece of each at a time */
struct rest {
    const struct attn *a;
    const struct gpu_runs *runs;
    struct kv_run *run;   /* [n_kv] */
    float *q, *out, *lse; /* of all pieces so far */
    float *out2, *lse2;
};

/* The i-th missing piece of each head's run; 0: there is none. */
static int rest_piece(struct rest *r, int i)
{
    int any = 0;

    for (int h = 0; h < r->a->n_kv; h++) {
        int lo, hi;
        r->run[h] = r->a->run[h];
        r->run[h].n = 0;
        if (!cb_gpu_runs_missing(r->runs, h, i, &lo, &hi))
            continue;
        any = 1;
        r->run[h] = cb_gpu_run_part(r->a, h, lo, hi);
    }
    return any;
}

static int rest_open(struct gpu *g, struct rest *r)
{
    const struct attn *a = r->a;
    const int64_t rows = (int64_t)a->n_tok * a->n_head;

    r->run = cb_calloc((size_t)a->n_kv, sizeof *r->run);
    r->out = cb_alloc_aligned((size_t)(2 * rows * (a->hd + 1)), sizeof *r->out);
    r->q = cb_gpu_to_host(g, a->q, floats(q_span(a)));
    if (!r->run || !r->out || !r->q) {
        cb_gpu_fail_memory(g, "attention");
        return 0;
    }
    r->lse = r->out + rows * a->hd;
    r->out2 = r->lse + rows;
    r->lse2 = r->out2 + rows * a->hd;
    return 1;
}

static void rest_close(struct rest *r)
{
    free(r->run);
    free(r->out);
    if (r->q != r->a->q)
        free(r->q);
}

/* Attention over what is missing -> out, lse */
static void rest_attend(struct gpu *g, struct rest *r)
{
    struct attn part = *r->a;

    part.causal = part.window = 0; /* every query sees what is missing */
    part.run = r->run;
    part.q = r->q;
    for (int i = 0; rest_piece(r, i); i++) {
        part.out = i ? r->out2 : r->out;
        part.lse = i ? r->lse2 : r->lse;
        g->host.ops->attention(&g->host, &part, 1);
        if (i)
            g->host.ops->join(&g->host, r->out, r->lse, r->out2, r->lse2, part.n_tok * part.n_head,
                              part.hd);
        for (int h = 0; h < part.n_kv; h++)
            g->traffic.host_rows += (uint64_t)r->run[h].n;
    }
}

/* ---- on the device ---- */

struct call {
    const struct attn *a;
    struct gpu_runs runs;
    float *q, *out, *lse; /* on the device */
    float *logit;         /* [n_head][logit_stride] there */
    int logit_stride;
    const char *kernel;
    size_t items, n_query; /* of a group */
    int per, n_split;      /* entries of a split; into how many the context is cut */
};

/* Prompts, whose attention is causal, multiply small matrices of halves where the device can; their
 * shortest chunks too, so that results do not depend on chunks. A half has not the digits of F32.
 */
static int uses_mma(const struct gpu *g, const struct attn *a)
{
    int own = 0;

    for (int h = 0; h < a->n_kv; h++)
        own |= a->run[h].given || a->run[h].logit;
    return g->driver->has_mma && a->causal && !own && a->hd % 2 == 0 && a->hd <= MMA_MOST_HD &&
           a->type_k != KV_F32 && a->type_v != KV_F32;
}

/* A decoded token, or one that reads a list of its own. A query of a prompt that others may share
 * a call with is attended as if they did: its bits must not depend on its chunk. */
static int is_alone(const struct attn *a)
{
    return a->n_tok == 1 && (!a->prompt || a->run[0].idx);
}

/* The attention of such a token multiplies small matrices as well, where keys and values have one
 * type other than f32. */
static int uses_few(const struct gpu *g, const struct attn *a)
{
    int other = 0;

    for (int h = 0; h < a->n_kv; h++)
        other |= a->run[h].given || a->run[h].kivi;
    return g->driver->has_mma && !a->causal && !other && is_alone(a) && a->hd % 8 == 0 &&
           a->hd <= MMA_MOST_HD && a->type_k == a->type_v && a->type_k != KV_F32;
}

static int longest(const struct attn *a)
{
    int n = 0;

    for (int h = 0; h < a->n_kv; h++)
        n = max_int(n, a->run[h].n);
    return n;
}

/* As begin_of in prompt.cl */
static int64_t begin_of(int64_t per, int split)
{
    return split < 8 ? split * per : per * (4 + split % 4) << (split / 4 - 1);
}

/* How attend_mma cuts a context of n entries, so that the queries of few heads keep all of the
 * device busy. A token's bits must not depend on its chunk, so the cuts do not. */
static void split_prompt(struct call *x, int n)
{
    const struct attn *a = x->a;

    if (a->window > 0 && a->window <= PROMPT_WINDOW)
        return;
    x->per = a->n_head > PROMPT_FEW_HEADS ? 2 * PROMPT_SPLIT : PROMPT_SPLIT;
    while (begin_of(x->per, x->n_split) < n)
        x->n_split++;
}

/* How attend_few cuts n entries: each SM is to have as many groups as find room at once, so that
 * all end together, however long the context is. A window's pieces begin where the window does. */
static void split_few(struct call *x, int n, int blocks)
{
    const struct attn *a = x->a;
    const int all = a->window > 0 && n > a->window ? a->window + FEW_AT_ONCE - 1 : n;
    const int at_once = a->hd <= 64 ? 4 : a->hd > 128 ? 2 : a->type_k == KV_Q8_0 ? 4 : 3;
    const int pieces = max_int(1, FEW_DEVICE * at_once / (a->n_kv * blocks));
    const int per = (all + pieces - 1) / pieces;

    x->per = max_int(FEW_SPLIT, (per + FEW_AT_ONCE - 1) / FEW_AT_ONCE * FEW_AT_ONCE);
    x->n_split = max_int(1, (all + x->per - 1) / x->per);
}

/* Which kernel attends, and how the context of a decoded token is cut. */
static void choose_kernel(const struct gpu *g, struct call *x)
{
    static const char *const few[] = {
        [KV_F16] = "attend_few", [KV_BF16] = "attend_few_bf16", [KV_Q8_0] = "attend_few_q8"
    };
    const struct attn *a = x->a;
    const int n = longest(a), blocks = (a->n_head / a->n_kv + NQ - 1) / NQ;

    x->per = INT32_MAX / 2;
    x->n_split = 1;
    x->items = MMA_ITEMS;
    if (uses_mma(g, a)) {
        x->kernel = "attend_mma";
        x->n_query = MMA_ITEMS / 32 * 16;
        split_prompt(x, n);
        return;
    }
    x->n_query = NQ;
    x->kernel = uses_few(g, a) ? few[a->type_k] : "attend";
    x->items = uses_few(g, a) ? MMA_ITEMS : NB;
    if (!is_alone(a))
        return;
    x->per = SPLIT;
    x->n_split = max_int(1, (n + SPLIT - 1) / SPLIT);
    if (uses_few(g, a))
        split_few(x, n, blocks);
}

/* Logits that heads share with the host, dense rows on the device */
static void share_logits(struct gpu *g, struct call *x)
{
    const struct attn *a = x->a;
    const int group = a->n_head / a->n_kv, most = longest(a);
    int any = 0;

    for (int h = 0; h < a->n_kv; h++)
        any |= a->run[h].logit != NULL;
    x->logit_stride = most;
    x->logit = any ? cb_gpu_room_for(g, floats((int64_t)a->n_head * most)) : NULL;
    for (int h = 0; x->logit && h < a->n_kv; h++) {
        const struct kv_run *run = &a->run[h];
        float *on = run->logit ? x->logit + (ptrdiff_t)h * group * most : NULL;
        x->runs.logit[h] = on;
        for (int j = 0; on && run->given && j < group; j++)
            cb_gpu_send(g, on + (size_t)j * (size_t)most,
                        run->logit + (size_t)j * (size_t)a->logit_stride, floats(run->n));
    }
}

/* The logits stay on the device if that has all of them. */
static int leave_logits(struct gpu *g, const struct call *x)
{
    const struct attn *a = x->a;
    const ptrdiff_t step = (ptrdiff_t)(a->n_head / a->n_kv) * a->logit_stride;
    int all = a->logit_later && !x->runs.missing;

    for (int h = 0; all && h < a->n_kv; h++)
        all = a->run[h].n == x->logit_stride && !a->run[h].given &&
              a->run[h].logit == a->run->logit + h * step;
    if (!all)
        return 0;
    if (g->logits.to) { /* another session's */
        cb_gpu_logits_home(g);
        cb_gpu_finish(g);
    }
    g->logits = (struct gpu_logits){ .to = a->run->logit,
                                     .on = x->logit,
                                     .n_head = a->n_head,
                                     .n = x->logit_stride,
                                     .stride = x->logit_stride,
                                     .to_stride = a->logit_stride,
                                     .missed_feed = g->logits.missed_feed,
                                     .missed = g->logits.missed };
    return 1;
}

/* A token's logits were to stay, but the device lacks rows. After a prompt that may be so for a
 * token, since its pages stay for one more. */
static void note_missed(struct gpu *g)
{
    struct gpu_logits *x = &g->logits;

    if (x->missed_feed == g->feed)
        return;
    x->missed = x->missed_feed + 1 == g->feed ? x->missed + 1 : 1;
    x->missed_feed = g->feed;
    if (x->missed >= MOST_MISSED)
        cb_gpu_say(g, NOTE_CHOOSING_ROWS,
                   "the rows of a layer that chooses tokens do not fit into the working set; the "
                   "CPU attends to some of them and chooses");
}

/* Present entries' logits -> the host, which writes the others itself */
static void return_logits(struct gpu *g, const struct call *x)
{
    const struct attn *a = x->a;
    const int group = a->n_head / a->n_kv, stride = x->logit_stride;

    for (int h = 0; h < a->n_kv; h++) {
        const struct kv_run *run = &a->run[h];
        const float *on = x->runs.logit[h];
        for (int i = 0, from = 0, lo, hi; on && !run->given && from < run->n; i++, from = hi) {
            if (!cb_gpu_runs_missing(&x->runs, h, i, &lo, &hi))
                lo = hi = run->n;
            g->owes = 1;
            for (int j = 0; j < group && lo > from; j++)
                cb_gpu_fetch(g, run->logit + (size_t)j * (size_t)a->logit_stride + from,
                             on + (size_t)j * (size_t)stride + from, floats(lo - from));
        }
    }
}

static void launch(struct gpu *g, struct gpu_program *p, struct call *x)
{
    const struct attn *a = x->a;
    const int group = a->n_head / a->n_kv;
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    const size_t groups[3] = { ((size_t)a->n_tok * (size_t)group + x->n_query - 1) / x->n_query,
                               (size_t)x->n_split, (size_t)a->n_kv };
    const struct gpu_arg arg[] = { GPU_P(x->runs.on), GPU_P(x->q),       GPU_I(a->q_stride),
                                   GPU_I(a->n_tok),   GPU_I(a->n_head),  GPU_I(group),
                                   GPU_F(a->scale),   GPU_F(a->softcap), GPU_I(a->causal),
                                   GPU_I(a->window),  GPU_I(x->per),     GPU_I(x->logit_stride),
                                   GPU_P(x->out),     GPU_P(x->lse) };

    cb_gpu_run(g, p, x->kernel, groups, x->items, arg, 14, x->runs.deep);
    if (x->n_split > 1)
        cb_gpu_join_parts(g, x->out, x->lse, x->out + rows * a->hd, x->lse + rows, x->n_split - 1,
                          rows * a->hd, rows, (int)rows, a->hd);
}

/* The CPU's part joins. */
static void add_rest(struct gpu *g, struct call *x)
{
    const struct attn *a = x->a;
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    struct rest r = { .a = a, .runs = &x->runs };

    if (!x->runs.missing)
        return;
    g->driver->flush(g);
    if (rest_open(g, &r)) {
        rest_attend(g, &r);
        cb_gpu_join_parts(g, x->out, x->lse, cb_gpu_in(g, r.out, floats(rows * a->hd)),
                          cb_gpu_in(g, r.lse, floats(rows)), 1, 0, 0, (int)rows, a->hd);
    }
    rest_close(&r);
}

static void give(struct gpu *g, float *to, const float *from, size_t bytes)
{
    if (!to || to == from || g->status)
        return;
    if (cb_gpu_is_on(g, to))
        cb_gpu_move(g, to, from, bytes);
    else
        cb_gpu_back(g, to, bytes, from, bytes, bytes, 1);
}

/* 1: done; 0: the CPU has to do all of it */
static int attend(struct gpu *g, struct gpu_program *p, const struct attn *a)
{
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    struct call x = { .a = a };
    int ok;

    choose_kernel(g, &x);
    x.q = cb_gpu_in(g, a->q, floats(q_span(a)));
    x.out = x.n_split == 1 && cb_gpu_is_on(g, a->out)
                ? a->out
                : cb_gpu_scratch(g, floats(x.n_split * rows * a->hd));
    x.lse = x.n_split == 1 && a->lse && cb_gpu_is_on(g, a->lse)
                ? a->lse
                : cb_gpu_scratch(g, floats(x.n_split * rows));
    cb_gpu_rewritten(g, a->out, floats(rows * a->hd));
    if (!cb_gpu_runs_open(g, &x.runs, a))
        return 0;
    share_logits(g, &x);
    ok = cb_gpu_runs_find(g, &x.runs) && !g->status;
    if (a->logit_later && (!ok || x.runs.missing))
        note_missed(g);
    if (ok) {
        launch(g, p, &x);
        if (!leave_logits(g, &x))
            return_logits(g, &x);
        add_rest(g, &x);
        give(g, a->out, x.out, floats(rows * a->hd));
        give(g, a->lse, x.lse, floats(rows));
    }
    cb_gpu_runs_close(g, &x.runs);
    cb_gpu_done(g);
    return ok || g->status;
}

/* Queries of a prompt whose splits take no more than half of the operands' share, in whole groups:
 * what they take beyond it, mirrored rows would give way to. */
static int queries_at_once(const struct gpu *g, const struct attn *a)
{
    struct call x = { .a = a };
    uint64_t most;
    int own = 0;

    for (int h = 0; h < a->n_kv; h++)
        own |= a->run[h].given || a->run[h].logit;
    choose_kernel(g, &x);
    if (!a->causal || own || x.n_split < 2)
        return a->n_tok;
    most = cb_gpu_operand_share(g) / 2 / floats((int64_t)x.n_split * a->n_head * (a->hd + 1));
    most = most / x.n_query * x.n_query;
    return most < x.n_query ? (int)x.n_query : min_int(a->n_tok, (int)min_size(most, INT32_MAX));
}

/* Queries from..from+n-1 of a causal call; run[n_kv] is theirs. */
static struct attn some_queries(const struct attn *a, int from, int n, struct kv_run *run)
{
    struct attn part = *a;

    part.n_tok = n;
    part.q += (ptrdiff_t)from * a->q_stride;
    part.out += (ptrdiff_t)from * a->n_head * a->hd;
    part.lse = a->lse ? a->lse + (ptrdiff_t)from * a->n_head : NULL;
    part.run = run;
    for (int h = 0; h < a->n_kv; h++) {
        run[h] = a->run[h];
        run[h].n -= a->n_tok - from - n;
    }
    return part;
}

static void attend_call(struct gpu *g, const struct attn *a)
{
    const int at_once = g->status || a->n_tok < 1 ? 0 : queries_at_once(g, a);
    struct kv_run *run = at_once ? cb_calloc((size_t)a->n_kv, sizeof *run) : NULL;
    struct gpu_program *p = run ? program(g, a) : NULL;

    if (at_once && !run)
        cb_gpu_fail_memory(g, "attention");
    if (run && !p)
        cb_gpu_say(g, NOTE_ATTENTION,
                   "the CPU attends: the kernel for this model does not compile");
    for (int from = 0; run && from < a->n_tok && !g->status; from += at_once) {
        const struct attn part = some_queries(a, from, min_int(at_once, a->n_tok - from), run);
        if (!p || !attend(g, p, &part))
            attend_on_host(g, &part, 1);
    }
    free(run);
}

void cb_gpu_attention(struct device *d, const struct attn *a, int n)
{
    for (int i = 0, m; i < n; i += m) {
        for (m = 0; m < AT_ONCE && i + m < n && is_for_host(&a[i + m]);)
            m++;
        if (m)
            attend_on_host(cb_gpu_of(d), a + i, m);
        else
            attend_call(cb_gpu_of(d), &a[i + m++]);
    }
}

/* ---- scores ---- */

static int score_rows(const struct score *s)
{
    return s->peak ? 1 : s->a.n_head / (s->per ? s->per : 1);
}

static void score_on_host(struct gpu *g, const struct score *s)
{
    const size_t q_bytes = s->a.q ? floats(q_span(&s->a)) : 0;
    struct score host = *s;
    float *q = cb_gpu_to_host(g, s->a.q, q_bytes);

    host.a.q = q;
    cb_gpu_finish(g);
    if (!g->status)
        g->host.ops->score(&g->host, &host);
    if (q != s->a.q)
        free(q);
}

static int score(struct gpu *g, struct gpu_program *p, const struct score *s)
{
    const struct attn *a = &s->a;
    const int n = longest(a), rows = score_rows(s), group = a->n_head / a->n_kv;
    const int64_t queries = (int64_t)a->n_tok * a->n_head;
    const size_t groups[3] = { ((size_t)n + NB - 1) / NB, (size_t)a->n_kv, 1 };
    const float *q = cb_gpu_in(g, a->q, floats(q_span(a)));
    const float *lse = cb_gpu_in(g, s->logit ? NULL : a->lse, floats(queries));
    const float *weight = cb_gpu_in(g, s->weight, floats(a->n_tok));
    float *out = cb_gpu_room_for(g, floats((int64_t)rows * n));
    struct gpu_runs runs;
    int ok;

    if (!cb_gpu_runs_open(g, &runs, a))
        return 0;
    ok = cb_gpu_runs_find(g, &runs) && !runs.missing && !g->status;
    for (int r = 0; ok && r < rows; r++)
        cb_gpu_send(g, out + (size_t)r * (size_t)n, s->out + (size_t)r * (size_t)s->out_stride,
                    floats(n));
    if (ok) {
        const struct gpu_arg arg[] = { GPU_P(runs.on),     GPU_P(q),
                                       GPU_I(a->q_stride), GPU_I(a->n_tok),
                                       GPU_I(a->n_head),   GPU_I(group),
                                       GPU_F(a->scale),    GPU_F(a->softcap),
                                       GPU_I(a->causal),   GPU_I(a->window),
                                       GPU_P(lse),         GPU_P(weight),
                                       GPU_I(s->logit),    GPU_I(s->per ? s->per : 1),
                                       GPU_P(out),         GPU_I(n) };
        cb_gpu_run(g, p, "score", groups, NB, arg, 16, runs.deep);
        cb_gpu_back(g, s->out, floats(s->out_stride), out, floats(n), floats(n), rows);
    }
    cb_gpu_runs_close(g, &runs);
    cb_gpu_done(g);
    return ok || g->status;
}

/* Scores of logits that the host has, the largest over heads or queries, and squares are the CPU's.
 */
void cb_gpu_score(struct device *d, const struct score *s)
{
    struct gpu *g = cb_gpu_of(d);
    struct gpu_program *p;
    int given = 0;

    if (g->status || s->a.n_tok < 1 || longest(&s->a) < 1)
        return;
    for (int h = 0; h < s->a.n_kv; h++)
        given |= s->a.run[h].given;
    given |= s->peak || s->most || s->squares;
    p = given ? NULL : program(g, &s->a);
    if (!p || !score(g, p, s))
        score_on_host(g, s);
}
