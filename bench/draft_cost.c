/* SPDX-License-Identifier: MIT */
/* draft_cost.c - what it costs to verify drafts: the time of 1, 2, 4, 8 and 16 tokens of one
 * session decoded together, as a table. The numbers of tokens take turns; the median round counts,
 * and where other programs run, the fastest one. Where the file has a head for later tokens, the
 * last row is the time in which that guesses a token.
 *
 * usage: bench/draft_cost MODEL CONTEXT [POLICY]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ctxbank.h"
#include "engine/mtp_drafter.h"

enum { ROUNDS = 21, MOST = 16 };

static const int sizes[] = { 1, 2, 4, 8, MOST };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Tokens of a text that no model has seen */
static void fill(int32_t *ids, int n, int n_vocab)
{
    uint32_t x = 1;

    for (int i = 0; i < n; i++) {
        x = 1664525u * x + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)n_vocab);
    }
}

static int time_one(cb_session *s, const int32_t *ids, int n, double *seconds)
{
    const int len = cb_session_len(s);
    const double start = cb_now_s();
    const float *logits;
    int err = cb_session_decode_all(s, ids, n, &logits);

    *seconds = cb_now_s() - start;
    return err ? err : cb_session_truncate(s, len);
}

static int time_all(cb_session *s, const int32_t *ids, double took[N_SIZES][ROUNDS])
{
    for (int r = -1; r < ROUNDS; r++) /* the first round only warms up */
        for (int i = 0; i < N_SIZES; i++) {
            double seconds;
            const int err = time_one(s, ids, sizes[i], &seconds);
            if (err)
                return err;
            if (r >= 0)
                took[i][r] = seconds;
        }
    return CB_OK;
}

/* The head's guess after a token, whose state goes through it first */
static int time_head(cb_session *s, const int32_t *ids, double took[ROUNDS])
{
    const int len = cb_session_len(s);
    int err = cb_mtp_drafter_open(s);

    for (int r = -1; r < ROUNDS && !err; r++) {
        double start;
        err = cb_session_decode(s, ids[0]);
        if (err || (err = cb_session_note_tokens(s, ids + 1, 1)))
            break;
        start = cb_now_s();
        (void)cb_session_mtp_guess(s, 1);
        if (r >= 0)
            took[r] = cb_now_s() - start;
        err = cb_session_truncate(s, len);
    }
    return err;
}

static void print(double took[N_SIZES][ROUNDS], double *head)
{
    double one = 0, fastest = 0;

    printf("| tokens | ms | of one token's | fastest, ms | of one token's |\n"
           "| --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < N_SIZES; i++) {
        qsort(took[i], ROUNDS, sizeof **took, by_size);
        one = i ? one : took[0][ROUNDS / 2];
        fastest = i ? fastest : took[0][0];
        printf("| %d | %.2f | %.2f | %.2f | %.2f |\n", sizes[i], took[i][ROUNDS / 2] * 1e3,
               took[i][ROUNDS / 2] / one, took[i][0] * 1e3, took[i][0] / fastest);
    }
    if (!head)
        return;
    qsort(head, ROUNDS, sizeof *head, by_size);
    printf("| head | %.2f | %.2f | %.2f | %.2f |\n", head[ROUNDS / 2] * 1e3, head[ROUNDS / 2] / one,
           head[0] * 1e3, head[0] / fastest);
}

static int measure(cb_model *m, int n_ctx, const char *policy)
{
    const struct cb_session_params p = { .n_ctx = n_ctx + MOST, .policy = policy };
    static double took[N_SIZES][ROUNDS], head[ROUNDS];
    int32_t *ids = calloc((size_t)n_ctx, sizeof *ids);
    cb_session *s = NULL;
    int err = ids ? cb_session_open(m, &p, &s) : CB_ENOMEM;

    if (!err) {
        fill(ids, n_ctx, cb_n_vocab(m));
        err = cb_session_prefill(s, ids, n_ctx, NULL);
    }
    if (!err)
        err = time_all(s, ids, took);
    if (!err && cb_session_draft_mtp(s))
        err = time_head(s, ids, head);
    if (!err)
        print(took, cb_session_draft_mtp(s) ? head : NULL);
    cb_session_close(s);
    free(ids);
    return err;
}

int main(int argc, char **argv)
{
    const struct cb_model_params params = { .draft_mtp = 1 };
    const int n_ctx = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    cb_model *m;
    int err;

    if (argc < 3 || argc > 4 || n_ctx < MOST) {
        fprintf(stderr, "usage: bench/draft_cost MODEL CONTEXT [POLICY], CONTEXT at least %d\n",
                MOST);
        return 2;
    }
    err = cb_model_open(argv[1], &params, &m);
    if (!err) {
        err = measure(m, n_ctx, argc > 3 ? argv[3] : "full");
        cb_model_close(m);
    }
    if (err)
        fprintf(stderr, "draft_cost: %s\n", cb_error());
    return err != 0;
}
