/* SPDX-License-Identifier: MIT */
/* at_depth.c - the time of a decoded token, and of prompts of 256, after many others that were
 * never computed: the stores and a selector's keys are filled with random rows. For layers as wide
 * as a large model's, whose prompt would take hours.
 *
 * usage: bench/at_depth [--decode] MODEL THREADS POLICY TOKENS...
 * --decode leaves the prompts out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "attention/attend.h"
#include "bank/pages.h"
#include "bank/store.h"
#include "bank/store_areas.h"
#include "bank/store_rows.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "device/index_strips.h"
#include "engine/session.h"

enum { STEP = 512, ROUNDS = 9, MOST_AREAS = 8, PROMPT = 256 };

/* A count of a command line */
static int number(const char *text)
{
    const double x = cb_number(text, NULL);

    return x >= 1 && x < 1 << 24 ? (int)x : 1;
}

static uint32_t seed = 1;

static float draw(void)
{
    seed = 1664525u * seed + 1013904223u;
    return (float)(seed >> 8) * 0x1p-23f - 1;
}

static void randomise(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = draw();
}

/* Rows of tokens from..from+n-1 of layer l, and its selector's keys */
static int fill_layer(struct cb_session *s, int l, int from, int n, float *x)
{
    const struct layer *y = &s->model->layer[l];
    const int stride = 2 * y->n_kv * y->hd, hd = s->model->hp.selector.hd;
    struct area area[MOST_AREAS];

    randomise(x, (size_t)n * (size_t)stride);
    TRY(cb_store_append(&s->bank.store[l], s->dev, x, x + y->n_kv * y->hd, stride, n, from));
    if (cb_attention_areas(&s->attention, l, NULL) > MOST_AREAS ||
        cb_attention_areas(&s->attention, l, area) != 1 || area->kind != AREA_INDEX_KEYS)
        return CB_OK;
    randomise(x, (size_t)n * (size_t)hd);
    if (area->bytes == cb_strips_bytes(hd, s->bank.n_seen)) {
        cb_strips_put(x, n, hd, hd, from, area->at);
    } else {
        const size_t row = area->bytes / (size_t)s->bank.n_seen;
        const enum kv_type t = row == (size_t)hd * 4   ? KV_F32
                               : row == (size_t)hd * 2 ? KV_F16
                                                       : KV_Q8_0;
        s->dev->ops->kv_encode(s->dev, t, x, n, hd, hd, (char *)area->at + (size_t)from * row);
    }
    return CB_OK;
}

/* As after a prompt */
static void huge_pages(struct cb_session *s, int l)
{
    struct area area[MOST_AREAS];

    cb_store_huge_pages(&s->bank.store[l]);
    for (int i = cb_attention_areas(&s->attention, l, area) - 1; i >= 0; i--)
        cb_pages_collapse(area[i].at, (uint8_t *)area[i].at + area[i].bytes);
}

static int fill(struct cb_session *s, int n)
{
    const struct hparams *hp = &s->model->hp;
    const size_t row = (size_t)(2 * hp->kv_max + hp->selector.hd);
    float *x = cb_alloc_aligned(STEP * row, sizeof *x);
    const int from = s->bank.n_seen;
    int err = x ? cb_session_fit_tokens(s, n) : CB_ENOMEM;

    for (int i = from; !err && i < n; i++) {
        s->token[i] = i % hp->n_vocab;
        s->decoded[i] = 0;
    }
    s->bank.n_seen = s->bank.prompt_end = n;
    for (int l = 0; !err && l < hp->n_layer; l++) {
        for (int i = from; !err && i < n; i += STEP)
            err = fill_layer(s, l, i, n - i < STEP ? n - i : STEP, x);
        huge_pages(s, l);
    }
    free(x);
    return err;
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec * 1e-6;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Processor time of a prompt of PROMPT tokens, the better of two: unrelated ones, or one token
 * again and again, whose queries are alike as those of neighbours in a text are */
static int time_prompt(struct cb_session *s, int alike, double *best)
{
    int32_t ids[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        ids[i] = alike ? 3 : i;
    for (int i = 0; i < 2; i++) {
        const double used = cpu_s();
        TRY(cb_session_prefill(s, ids, PROMPT, NULL));
        *best = i && *best < cpu_s() - used ? *best : cpu_s() - used;
    }
    return CB_OK;
}

static int time_tokens(struct cb_session *s, const char *policy, int n, int prompts)
{
    double wall[ROUNDS], cpu[ROUNDS], prompt[2] = { 0 };
    struct cb_memory m;

    for (int i = -1; i < ROUNDS; i++) { /* the first one only warms up */
        const double start = cb_now_s(), used = cpu_s();
        TRY(cb_session_decode(s, 7 + i));
        if (i < 0)
            continue;
        wall[i] = cb_now_s() - start;
        cpu[i] = cpu_s() - used;
    }
    qsort(wall, ROUNDS, sizeof *wall, by_size);
    qsort(cpu, ROUNDS, sizeof *cpu, by_size);
    cb_session_memory(s, &m);
    for (int alike = 0; prompts && alike < 2; alike++)
        TRY(time_prompt(s, alike, &prompt[alike]));
    printf("| %s | %d | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f |\n", policy, n, 1e3 * wall[0],
           1e3 * wall[ROUNDS / 2], 1e3 * cpu[0], (double)m.kv_read_bytes_per_token / 1e6, prompt[0],
           prompt[1]);
    return CB_OK;
}

static int run(cb_model *m, const char *policy, int n, char **depth, int prompts)
{
    const int most = number(depth[n - 1]);
    const struct cb_session_params p = { .n_ctx = most + n * (ROUNDS + 1 + 4 * PROMPT),
                                         .policy = policy };
    cb_session *s;

    TRY(cb_session_open(m, &p, &s));
    for (int i = 0; i < n; i++) {
        TRY(fill(s, number(depth[i])));
        TRY(time_tokens(s, policy, number(depth[i]), prompts));
    }
    cb_session_close(s);
    return CB_OK;
}

int main(int argc, char **argv)
{
    cb_model *m;
    const int decode = argc > 1 && !strcmp(argv[1], "--decode");

    argc -= decode;
    argv += decode;
    if (argc < 5) {
        fprintf(stderr, "usage: at_depth [--decode] MODEL THREADS POLICY TOKENS...\n");
        return 2;
    }
    const struct cb_model_params p = { .n_threads = number(argv[2]) };
    printf("| policy | tokens before | ms, best | ms, median | CPU ms, best | MB read | prompt, "
           "CPU s | of one token, CPU s |\n"
           "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    if (cb_model_open(argv[1], &p, &m) || run(m, argv[3], argc - 4, argv + 4, !decode)) {
        fprintf(stderr, "at_depth: %s\n", cb_error());
        return 1;
    }
    cb_model_close(m);
    return 0;
}
