/* SPDX-License-Identifier: MIT */
/* device_answer.c - random models on devices, and their answers. */
#include "device_answer.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/readers/chooser.h"
#include "suite.h"
#include "tiny.h"
#include "toy.h"

const struct answer_size cb_answer_long = { .prompt = 900, .second = 70, .tokens = 24 };

struct cb_model *cb_answer_model(const char *family, int n_layer, const struct cb_model_params *p)
{
    struct tiny tiny = cb_tiny_small(family);

    tiny.hd = 32;
    tiny.n_ctx = 1100;
    tiny.n_layer = n_layer ? n_layer : tiny.n_layer;
    return cb_toy_model_with(&tiny, p);
}

struct cb_model *cb_answer_model_on(const char *family, int n_layer, const char *device,
                                    uint64_t working_set)
{
    const struct cb_model_params p = { .device = device,
                                       .n_threads = 2,
                                       .working_set = working_set };
    return cb_answer_model(family, n_layer, &p);
}

int cb_answer_open(struct cb_model *m, const char *policy, const char *prefill, const char *type_kv,
                   struct cb_session **s)
{
    const struct cb_session_params p = { .n_ctx = 1024,
                                         .chunk = 64,
                                         .type_k = type_kv,
                                         .type_v = cb_toy_values(type_kv),
                                         .policy = policy,
                                         .prefill = prefill };
    return cb_session_open(m, &p, s);
}

static void note_chosen(const struct cb_session *s, struct answer_chosen *c)
{
    int n = 0, i = 0;
    const int32_t *slot = c->layer ? cb_chooser_slots(&s->attention, c->layer, &n) : NULL;

    if (!slot)
        return;
    c->fresh = -1;
    for (int j = 0; j < n; j++) {
        while (i < c->n && c->slot[i] < slot[j])
            i++;
        c->fresh += i == c->n || c->slot[i] != slot[j];
    }
    memcpy(c->slot, slot, (size_t)n * sizeof *slot);
    c->n = n;
}

/* The next n tokens of a text without an end, and the logits after them */
static void feed(struct cb_session *s, int from, int n, float *logits)
{
    const int32_t *text = cb_toy_text(s->model);
    int32_t *tok = malloc((size_t)n * sizeof *tok);

    for (int i = 0; i < n; i++)
        tok[i] = text[(from + i) % TOY_TEXT];
    ck_assert_ok(cb_session_prefill(s, tok, n, NULL));
    memcpy(logits, cb_session_logits(s), (size_t)s->model->hp.n_vocab * sizeof *logits);
    free(tok);
}

float *cb_answer(struct cb_session *s, const struct answer_size *size, struct answer_chosen *chosen,
                 int n_chosen)
{
    const int32_t *text = cb_toy_text(s->model);
    const size_t n_vocab = (size_t)s->model->hp.n_vocab;
    float *out = malloc((size_t)(size->tokens + 2) * n_vocab * sizeof *out);

    feed(s, 0, size->prompt, out);
    feed(s, size->prompt, size->second, out + n_vocab);
    for (int i = 0; i < size->tokens; i++) {
        ck_assert_ok(cb_session_decode(s, text[i]));
        memcpy(out + (size_t)(i + 2) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
        for (int c = 0; c < n_chosen; c++)
            note_chosen(s, &chosen[c]);
    }
    return out;
}

float *cb_answer_long_of(struct cb_model *m, const char *policy, const char *prefill,
                         const char *type_kv, struct answer_chosen *chosen, int n_chosen,
                         struct cb_memory *mem)
{
    struct cb_session *s;
    float *out;

    ck_assert_ok(cb_answer_open(m, policy, prefill, type_kv, &s));
    out = cb_answer(s, &cb_answer_long, chosen, n_chosen);
    cb_session_memory(s, mem);
    cb_session_close(s);
    return out;
}

double cb_answer_apart(const struct cb_model *m, const struct answer_size *size, const float *a,
                       const float *b)
{
    const size_t n = (size_t)(size->tokens + 2) * (size_t)m->hp.n_vocab;
    double most = 0, largest = 0;

    for (size_t i = 0; i < n; i++) {
        ck_assert(isfinite(a[i]));
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    return most / largest;
}
