/* SPDX-License-Identifier: MIT */
/* beside_llama.c - logits of ctxbank and of llama.cpp for the same tokens and the same file.
 * bench/compare builds it with both libraries; `make` does not.
 *
 * usage: beside-llama MODEL.gguf [PROMPT [DECODED [LOGITS]]]
 *
 * Reads a prompt of arbitrary tokens (96), decodes a few more (8), and prints one line of JSON over
 * all their logits: the largest difference, in standard deviations of a token's logits; the mean KL
 * divergence of ctxbank's probabilities from llama.cpp's; how often both find the same token the
 * likeliest.
 *
 * LOGITS: a file for llama.cpp's logits, f32[tokens][n_vocab], and for the token ids before them,
 * i32[tokens]. Both programs then store keys and values as F32, and llama.cpp attends without its
 * fused kernel: tests/vectors/make_variants.py records such logits. */
#include <ctxbank.h>
#include <llama.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct logits {
    int n_token, n_vocab, n; /* n: tokens so far */
    float *at;               /* [n_token][n_vocab] */
};

static void fail(const char *who, const char *why)
{
    fprintf(stderr, "%s: %s\n", who, why);
    exit(1);
}

static void keep(void *arg, int i, const float *logits)
{
    struct logits *l = arg;

    (void)i;
    memcpy(l->at + (size_t)l->n++ * l->n_vocab, logits, l->n_vocab * sizeof *logits);
}

static void open_logits(struct logits *l, int n_token, int n_vocab)
{
    *l = (struct logits){ n_token, n_vocab, 0, calloc((size_t)n_token * n_vocab, sizeof(float)) };
    if (!l->at)
        fail("logits", "out of memory");
}

/* Arbitrary tokens, the same every time */
static int32_t *make_tokens(int n, int n_vocab)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    uint32_t x = 1;

    for (int i = 0; ids && i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)n_vocab);
    }
    return ids;
}

/* ---- ctxbank ---- */

static void must(int status)
{
    if (status < 0)
        fail("ctxbank", cb_error());
}

/* *ids: the tokens, which the caller frees */
static void run_ctxbank(const char *path, int n_prompt, int n_more, int exact, struct logits *l,
                        int32_t **ids)
{
    struct cb_session_params how = cb_session_defaults();
    struct cb_prefill prefill = cb_prefill_defaults();
    cb_session *s;
    cb_model *m;

    must(cb_model_open(path, NULL, &m));
    open_logits(l, n_prompt + n_more, cb_n_vocab(m));
    *ids = make_tokens(l->n_token, l->n_vocab);
    if (!*ids)
        fail("tokens", "out of memory");
    how.n_ctx = l->n_token;
    if (exact)
        how.type_k = how.type_v = "f32";
    prefill.logits = keep;
    prefill.logits_arg = l;
    must(cb_session_open(m, &how, &s));
    must(cb_session_prefill(s, *ids, n_prompt, &prefill));
    for (int i = n_prompt; i < l->n_token; i++) {
        must(cb_session_decode(s, (*ids)[i]));
        keep(l, i, cb_session_logits(s));
    }
    cb_session_close(s);
    cb_model_close(m);
}

/* ---- llama.cpp ---- */

/* Tokens from..to - 1 in one call */
static void feed_llama(struct llama_context *ctx, const int32_t *ids, int from, int to,
                       struct logits *l)
{
    struct llama_batch b = llama_batch_init(to - from, 0, 1);

    b.n_tokens = to - from;
    for (int i = 0; i < b.n_tokens; i++) {
        b.token[i] = ids[from + i];
        b.pos[i] = from + i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = 0;
        b.logits[i] = 1;
    }
    if (llama_decode(ctx, b))
        fail("llama.cpp", "the tokens cannot be computed");
    for (int i = 0; i < b.n_tokens; i++)
        keep(l, from + i, llama_get_logits_ith(ctx, i));
    llama_batch_free(b);
}

static void only_errors(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static void run_llama(const char *path, const int32_t *ids, int n_prompt, int exact,
                      struct logits *l)
{
    struct llama_context_params how = llama_context_default_params();
    struct llama_context *ctx;
    struct llama_model *m;

    llama_log_set(only_errors, NULL);
    llama_backend_init();
    m = llama_model_load_from_file(path, llama_model_default_params());
    how.n_ctx = (uint32_t)l->n_token;
    how.n_batch = how.n_ubatch = (uint32_t)n_prompt;
    if (exact) {
        how.type_k = how.type_v = GGML_TYPE_F32;
        how.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    ctx = m ? llama_init_from_model(m, how) : NULL;
    if (!ctx)
        fail("llama.cpp", "the model cannot be loaded");
    if (llama_vocab_n_tokens(llama_model_get_vocab(m)) != l->n_vocab)
        fail("llama.cpp", "the vocabulary has another size");
    feed_llama(ctx, ids, 0, n_prompt, l);
    for (int i = n_prompt; i < l->n_token; i++)
        feed_llama(ctx, ids, i, i + 1, l);
    llama_free(ctx);
    llama_model_free(m);
}

/* ---- the difference ---- */

struct token {
    double mean, sd, log_sum; /* log of the sum of e^logit */
    int best;
};

static struct token about(const float *x, int n)
{
    struct token t = { 0, 0, 0, 0 };
    double square = 0, sum = 0;

    for (int i = 0; i < n; i++) {
        t.mean += x[i] / n;
        square += (double)x[i] * x[i] / n;
        t.best = x[i] > x[t.best] ? i : t.best;
    }
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - x[t.best]);
    t.sd = sqrt(square - t.mean * t.mean);
    t.log_sum = x[t.best] + log(sum);
    return t;
}

static void compare(const struct logits *a, const struct logits *b)
{
    double most = 0, kl = 0;
    int same = 0;

    for (int i = 0; i < a->n_token; i++) {
        const float *x = a->at + (size_t)i * a->n_vocab, *y = b->at + (size_t)i * b->n_vocab;
        const struct token tx = about(x, a->n_vocab), ty = about(y, a->n_vocab);
        for (int k = 0; k < a->n_vocab; k++) {
            const double off = fabs((double)x[k] - y[k]) / ty.sd;
            const double log_x = x[k] - tx.log_sum, log_y = y[k] - ty.log_sum;
            most = off <= most ? most : off; /* a NaN stays */
            kl += exp(log_y) * (log_y - log_x) / a->n_token;
        }
        same += tx.best == ty.best;
    }
    printf("{\"tokens\": %d, \"largest\": %.2g, \"kl\": %.2g, \"same\": %d}\n", a->n_token, most,
           kl, same);
}

static void record(const char *path, const int32_t *ids, const struct logits *l)
{
    FILE *f = fopen(path, "wb");
    const size_t n = (size_t)l->n_token, all = n * (size_t)l->n_vocab;

    if (!f || fwrite(ids, sizeof *ids, n, f) != n || fwrite(l->at, sizeof(float), all, f) != all ||
        fclose(f))
        fail(path, "cannot be written");
}

int main(int argc, char **argv)
{
    const int exact = argc > 4;

    const int n_prompt = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 96;
    const int n_more = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 8;
    struct logits ours, theirs;
    int32_t *ids;

    if (argc < 2 || argc > 5 || n_prompt < 1 || n_more < 0)
        return fputs("usage: beside-llama MODEL.gguf [PROMPT [DECODED [LOGITS]]]\n", stderr), 2;
    run_ctxbank(argv[1], n_prompt, n_more, exact, &ours, &ids);
    open_logits(&theirs, ours.n_token, ours.n_vocab);
    run_llama(argv[1], ids, n_prompt, exact, &theirs);
    compare(&ours, &theirs);
    if (exact)
        record(argv[4], ids, &theirs);
    free(ours.at);
    free(theirs.at);
    free(ids);
    return 0;
}
