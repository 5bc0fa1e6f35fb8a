/* SPDX-License-Identifier: MIT */
/* logprobs.c - how likely the model found a token, and which ones it found likeliest. */
#include "logprobs.h"

#include <math.h>
#include <stdlib.h>

#include "base/ints.h"
#include "base/topk_heap.h"

/* Logarithm of the sum of all exp(logits): double, so that 150,000 small terms count */
static double log_sum(const float *logits, int n)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        max = (double)logits[i] > max ? (double)logits[i] : max;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum);
}

static int in_order(const void *a, const void *b)
{
    return cb_topk_before(a, b) ? -1 : 1;
}

void cb_logprobs(const float *logits, int n_vocab, int32_t id, int n_top, struct job_token *out)
{
    const double all = log_sum(logits, n_vocab);
    struct topk_item top[CB_LOGPROBS_MOST];

    out->at = (struct token_logprob){ id, (float)((double)logits[id] - all) };
    out->n_top = min_int(min_int(n_top, CB_LOGPROBS_MOST), n_vocab);
    cb_topk_heap(logits, NULL, n_vocab, out->n_top, top);
    qsort(top, (size_t)out->n_top, sizeof *top, in_order);
    for (int i = 0; i < out->n_top; i++)
        out->top[i] = (struct token_logprob){ top[i].i, (float)((double)top[i].x - all) };
}
