/* SPDX-License-Identifier: MIT */
/* act_bits.c - what 8-bit activations cost: the negative log-likelihood of a text that follows a
 * prompt, with tokens decoded at 16 and at 8 bits, and the divergence of the two.
 *
 * usage: bench/act_bits MODEL TEXT.txt [PROMPT-TOKENS [TOKENS]]
 */
#include <ctxbank.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_TEXT = 1 << 20 };

/* ln of the sum of exp(x), with the largest taken out */
static double log_sum(const float *x, int n)
{
    double top = x[0], sum = 0;

    for (int i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - top);
    return top + log(sum);
}

static int largest(const float *x, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

struct sums {
    double nll[2], kl;
    int same; /* tokens whose largest logit is the same */
};

/* Adds what 16 and 8 bits predict for token `next`. */
static void add(const float *a, const float *b, int n_vocab, int32_t next, struct sums *s)
{
    const double la = log_sum(a, n_vocab), lb = log_sum(b, n_vocab);

    s->nll[0] += la - a[next];
    s->nll[1] += lb - b[next];
    for (int i = 0; i < n_vocab; i++)
        s->kl += exp(a[i] - la) * ((a[i] - la) - (b[i] - lb));
    s->same += largest(a, n_vocab) == largest(b, n_vocab);
}

static int compare(cb_model *m, const int32_t *ids, int n_prompt, int n, struct sums *out)
{
    struct cb_session_params p = cb_session_defaults();
    cb_session *s[2] = { NULL, NULL };
    int err = CB_OK;

    p.n_ctx = n_prompt + n;
    for (int k = 0; k < 2 && !err; k++) {
        p.act_bits = k ? 8 : 16;
        err = cb_session_open(m, &p, &s[k]);
        err = err ? err : cb_session_prefill(s[k], ids, n_prompt, NULL);
    }
    for (int i = n_prompt; i + 1 < n_prompt + n && !err; i++) {
        for (int k = 0; k < 2 && !err; k++)
            err = cb_session_decode(s[k], ids[i]);
        if (!err)
            add(cb_session_logits(s[0]), cb_session_logits(s[1]), cb_n_vocab(m), ids[i + 1], out);
    }
    cb_session_close(s[0]);
    cb_session_close(s[1]);
    return err;
}

static int number(const char *arg, int otherwise)
{
    return arg ? (int)strtol(arg, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    static char text[MOST_TEXT];
    struct sums s = { 0 };
    cb_model *m = NULL;
    int32_t *ids = NULL;
    int n_ids = 0, n_prompt, n, err;
    size_t len;
    FILE *f;

    if (argc < 3 || argc > 5) {
        fputs("usage: bench/act_bits MODEL TEXT.txt [PROMPT-TOKENS [TOKENS]]\n", stderr);
        return 2;
    }
    n_prompt = number(argc > 3 ? argv[3] : NULL, 512);
    n = number(argc > 4 ? argv[4] : NULL, 512);
    f = fopen(argv[2], "rb");
    if (!f) {
        perror(argv[2]);
        return 1;
    }
    len = fread(text, 1, sizeof text, f);
    fclose(f);
    err = cb_model_open(argv[1], NULL, &m);
    if (!err)
        err = cb_tokenize(m, text, len, 0, &ids, &n_ids);
    if (!err && (n_prompt < 1 || n < 2 || n_ids < n_prompt + n)) {
        fprintf(stderr, "act_bits: prompt %d and text %d do not fit into %d tokens\n", n_prompt, n,
                n_ids);
        free(ids);
        cb_model_close(m);
        return 1;
    }
    if (!err)
        err = compare(m, ids, n_prompt, n, &s);
    if (err)
        fprintf(stderr, "act_bits: %s\n", cb_error());
    else
        printf("NLL a token %.4f at 16 bits, %.4f at 8; KL divergence %.5f; the same largest logit "
               "%.1f%%\n",
               s.nll[0] / (n - 1), s.nll[1] / (n - 1), s.kl / (n - 1), 100.0 * s.same / (n - 1));
    free(ids);
    cb_model_close(m);
    return err != 0;
}
