/* SPDX-License-Identifier: MIT */
/* policies.c - times decoding under many policies after one prompt, which is prefilled once for all
 * policies that can share it, as a table. Policies take turns in rounds of a few tokens, and the
 * median round counts, so that other load on the machine affects all policies alike.
 *
 * usage: bench/policies MODEL TOKENS[:TYPE,...] POLICY...     TYPE: of keys and values, default f16
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/session.h"

enum { ROUNDS = 41, ROUND_TOKENS = 8, MOST = 64 };

struct lane {
    const char *policy, *type; /* type: of keys and values */
    cb_session *s;
    double prefill_s, round[ROUNDS]; /* seconds; prefill 0 = shared */
    struct cb_memory mem;
};

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int32_t token_at(const struct cb_model *m, int i)
{
    uint32_t x = (uint32_t)i * 2654435761u;
    return (int32_t)((x >> 8) % (uint32_t)m->hp.n_vocab);
}

static int open_lane(struct lane *y, cb_model *m, const char *policy, const char *type, int n_ctx)
{
    const struct cb_session_params p = {
        .policy = policy, .type_k = type, .type_v = type, .n_ctx = n_ctx
    };
    int err;

    *y = (struct lane){ .policy = policy, .type = type };
    err = cb_session_open(m, &p, &y->s);
    return err ? err : cb_session_want_top(y->s, cb_sampler_defaults().top_k);
}

/* Prefills the prompt once for the first policy and all that can follow it, then for each of the
 * others. */
static int fill(struct lane *lane, int n, const int32_t *ids, int n_tok)
{
    struct cb_session *follower[MOST];
    int n_follow = 0, err;

    for (int i = 1; i < n; i++)
        if (cb_session_can_follow(lane[i].s, lane[0].s))
            follower[n_follow++] = lane[i].s;
        else
            lane[i].prefill_s = -1;
    err = cb_session_prefill_shared(lane[0].s, follower, NULL, n_follow, ids, n_tok, NULL);
    for (int i = 1; i < n && !err; i++)
        if (lane[i].prefill_s < 0) {
            lane[i].prefill_s = cb_now_s();
            err = cb_session_prefill(lane[i].s, ids, n_tok, NULL);
            lane[i].prefill_s = cb_now_s() - lane[i].prefill_s;
        }
    return err;
}

static int decode(struct lane *y, const cb_model *m, int round)
{
    const double start = cb_now_s();
    int err = CB_OK;

    for (int i = 0; i < ROUND_TOKENS && !err; i++)
        err = cb_session_decode(y->s, token_at(m, 1000000 + round * ROUND_TOKENS + i));
    y->round[round] = (cb_now_s() - start) / ROUND_TOKENS;
    return err;
}

static void print(const struct lane *y, int n_tok, double first)
{
    const double s = y->round[ROUNDS / 2];

    printf("| %d | %s | %s | %.1f | %.2fx | %.1f | %.1f | %.1f |\n", n_tok, y->type, y->policy,
           1 / s, first / s, 1e-6 * (double)y->mem.kv_bytes, 1e-6 * (double)y->mem.kv_peak_bytes,
           1e-6 * (double)y->mem.kv_read_bytes_per_token);
}

static int run(struct lane *lane, int n, const cb_model *m, int n_tok)
{
    int32_t *ids = malloc((size_t)n_tok * sizeof *ids + 1);
    int err = ids ? CB_OK : CB_ENOMEM;

    for (int i = 0; !err && i < n_tok; i++)
        ids[i] = token_at(m, i);
    if (!err && n_tok)
        err = fill(lane, n, ids, n_tok);
    free(ids);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < n && !err; i++)
            err = decode(&lane[i], m, r);
    for (int i = 0; i < n && !err; i++) {
        qsort(lane[i].round, ROUNDS, sizeof *lane[i].round, by_size);
        cb_session_memory(lane[i].s, &lane[i].mem);
        print(&lane[i], n_tok, lane[0].round[ROUNDS / 2]);
    }
    return err;
}

int main(int argc, char **argv)
{
    char f16[] = "f16", *type = f16, *next;
    struct lane lane[MOST];
    cb_model *m = NULL;
    int n_tok, n = 0, err;

    if (argc < 4) {
        fprintf(stderr, "usage: bench/policies MODEL TOKENS[:TYPE,...] POLICY...\n");
        return 2;
    }
    n_tok = (int)strtol(argv[2], &next, 10);
    if (*next == ':')
        type = next + 1;
    err = cb_model_open(argv[1], NULL, &m);
    for (; type; type = next) {
        next = strchr(type, ',');
        if (next)
            *next++ = '\0';
        for (int i = 3; i < argc && n < MOST && !err; i++)
            err = open_lane(&lane[n++], m, argv[i], type, n_tok + ROUNDS * ROUND_TOKENS + 1);
    }
    if (!err) {
        puts("| tokens | K, V | policy | decode t/s | of the first | KV MB | peak MB | read MB a "
             "token |\n"
             "| --- | --- | --- | --- | --- | --- | --- | --- |");
        err = run(lane, n, m, n_tok);
    }
    if (err)
        fprintf(stderr, "policies: %s\n", cb_error());
    for (int i = 0; i < n; i++)
        cb_session_close(lane[i].s);
    cb_model_close(m);
    return err ? 1 : 0;
}
