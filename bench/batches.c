/* SPDX-License-Identifier: MIT */
/* batches.c - tokens a second of one session and of several sessions decoded together after one
 * shared prompt, as a table. Sizes take turns in rounds of a few steps, and the median round
 * counts, so that other load on the machine affects all sizes alike. Each batch's logits are
 * compared with those of the session that is decoded alone and fed the same tokens; a difference
 * ends the run. SESSIONS:8 is a batch with 8-bit activations, whose sessions are compared with each
 * other. With "forks", the sessions of a batch are copies of the first one and share its pages.
 *
 * usage: bench/batches MODEL TOKENS SESSIONS[:8],... [forks]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/session.h"

enum { ROUNDS = 15, STEPS = 4, MOST = 64, MOST_SIZES = 8 };

struct batch {
    int n, act_bits;
    double round[ROUNDS]; /* seconds a step */
};

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int32_t token_at(const struct cb_model *m, int i)
{
    const uint32_t x = (uint32_t)i * 2654435761u;
    return (int32_t)((x >> 8) % (uint32_t)m->hp.n_vocab);
}

/* Sessions 0..n-1 decode the next STEPS tokens together, the same tokens for all. */
static int together(cb_session **s, int n, const cb_model *m, int at, double *out)
{
    const double start = cb_now_s();
    int32_t tok[MOST];

    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < n; i++)
            tok[i] = token_at(m, at + k);
        TRY(n > 1 ? cb_decode_batch(s, tok, n) : cb_session_decode(s[0], tok[0]));
    }
    *out = (cb_now_s() - start) / STEPS;
    return CB_OK;
}

/* Each size has its own sessions: s[k][0..n-1] for size k. */
static int rounds(cb_session *s[][MOST], struct batch *b, int n_size, const cb_model *m)
{
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);

    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < n_size; k++) {
            TRY(together(s[k], b[k].n, m, 1000000 + r * STEPS, &b[k].round[r]));
            for (int i = 0; i < b[k].n; i++)
                if (memcmp(cb_session_logits(s[k][i]),
                           cb_session_logits(s[b[k].act_bits == 8 ? k : 0][0]), bytes))
                    return cb_fail(CB_EFORMAT, "%d sessions: session %d differs from one alone",
                                   b[k].n, i);
        }
    return CB_OK;
}

static int fork_all(cb_session *s[][MOST], const struct batch *b, int n_size)
{
    for (int k = 0; k < n_size; k++)
        for (int i = 1; i < b[k].n; i++)
            TRY(cb_session_fork(s[k][0], &s[k][i]));
    return CB_OK;
}

static int open_all(cb_session *s[][MOST], const struct batch *b, int n_size, cb_model *m,
                    int n_tok, int forks)
{
    struct cb_session_params p = { .n_ctx = n_tok + ROUNDS * STEPS + 1 };
    cb_session *all[MOST_SIZES * MOST];
    int32_t *ids = malloc((size_t)n_tok * sizeof *ids);
    int n = 0, err = ids ? CB_OK : CB_ENOMEM;

    for (int k = 0; k < n_size; k++)
        for (int i = 0; i < (forks ? 1 : b[k].n) && !err; i++) {
            p.act_bits = b[k].act_bits;
            err = cb_session_open(m, &p, &s[k][i]);
            all[n++] = s[k][i];
        }
    for (int i = 0; i < n_tok && !err; i++)
        ids[i] = token_at(m, i);
    if (!err)
        err = cb_session_prefill_shared(all[0], all + 1, NULL, n - 1, ids, n_tok, NULL);
    if (!err && forks)
        err = fork_all(s, b, n_size);
    free(ids);
    return err;
}

int main(int argc, char **argv)
{
    static cb_session *s[MOST_SIZES][MOST];
    struct batch b[MOST_SIZES] = { { .n = 1, .act_bits = 16 } };
    struct cb_memory mem;
    cb_model *m = NULL;
    const int forks = argc == 5 && !strcmp(argv[4], "forks");
    int n_size = 1, n_tok, err;

    if (argc != 4 + forks) {
        fprintf(stderr, "usage: bench/batches MODEL TOKENS SESSIONS[:8],... [forks]\n");
        return 2;
    }
    n_tok = (int)strtol(argv[2], NULL, 10);
    for (char *at = argv[3]; at && n_size < MOST_SIZES; at = strchr(at, ',')) {
        at += *at == ',';
        b[n_size].n = (int)strtol(at, &at, 10);
        b[n_size].act_bits = *at == ':' ? (int)strtol(at + 1, &at, 10) : 16;
        if (b[n_size].n < 1 || b[n_size++].n > MOST) {
            fprintf(stderr, "batches: 1 to %d sessions\n", MOST);
            return 2;
        }
    }
    err = cb_model_open(argv[1], NULL, &m);
    if (!err)
        err = open_all(s, b, n_size, m, n_tok, forks);
    if (!err)
        err = rounds(s, b, n_size, m);
    if (!err)
        puts("| sessions | bits | tokens each | t/s of all | of one | KV MB of all | shared MB |\n"
             "| --- | --- | --- | --- | --- | --- | --- |");
    for (int k = 0; k < n_size && !err; k++) {
        qsort(b[k].round, ROUNDS, sizeof *b[k].round, by_size);
        cb_session_memory(s[k][0], &mem);
        printf("| %d | %d | %d | %.1f | %.2fx | %.1f | %.1f |\n", b[k].n, b[k].act_bits, n_tok,
               b[k].n / b[k].round[ROUNDS / 2],
               b[k].n * b[0].round[ROUNDS / 2] / b[k].round[ROUNDS / 2],
               1e-6 * b[k].n * (double)mem.kv_bytes, 1e-6 * (double)mem.shared_bytes);
    }
    if (err)
        fprintf(stderr, "batches: %s\n", cb_error());
    for (int k = 0; k < n_size; k++)
        for (int i = 0; i < b[k].n; i++)
            cb_session_close(s[k][i]);
    cb_model_close(m);
    return err != 0;
}
