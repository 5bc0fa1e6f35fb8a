/* SPDX-License-Identifier: MIT */
/* check_mask.c - every evicting policy on small random models, beside the slow run that keeps all
 * and masks what the policy's formula drops: the same slots and the same logits, token by token and
 * in a second turn. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "formulas.h"
#include "kit/slow.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { CAP = CB_REF_CAP, PROMPT = 90, STEPS = 64, SECOND = 20, LAYERS = CB_REF_LAYERS };

/* ---- the slow run and the session, side by side ---- */

struct pair {
    const char *spec;
    void (*drop)(struct slow *s, int prompt);
    void (*pass)(struct slow *s, int l);
    int rolling, window, ceiling;
    int prompt; /* tokens, 0 = PROMPT */
    int piece;  /* > 0: tokens are dropped after every so many of a prompt */
    int first;  /* > 0: tokens of a prompt before that one */
    int edge;   /* > 0: slots that a KV head of layer 0 keeps */
};

static const struct pair pairs[] = {
    { .spec = "window:budget=24", .drop = cb_ref_window, .window = 24 },
    { .spec = "window:budget=24,prefill=dense", .drop = cb_ref_window },
    { .spec = "window:budget=24,decode=grow", .drop = cb_ref_dense },
    { .spec = "streamingllm:budget=24", .drop = cb_ref_streaming, .rolling = 1 },
    { .spec = "streamingllm:recent=20,positions=kept", .drop = cb_ref_streaming },
    { .spec = "streamingllm:budget=150",
      .drop = cb_ref_streaming_long,
      .rolling = 1,
      .prompt = 160 },
    { .spec = "streamingllm:budget=24,prefill=windowed",
      .drop = cb_ref_streaming,
      .rolling = 1,
      .piece = 1 },
    { .spec = "streamingllm:budget=24,prefill=windowed,positions=kept",
      .drop = cb_ref_streaming,
      .piece = 1 },
    { .spec = "streamingllm:recent=24,sink=0,prefill=windowed",
      .drop = cb_ref_window,
      .rolling = 1,
      .piece = 1 },
    { .spec = "h2o:budget=24", .drop = cb_ref_h2o },
    { .spec = "h2o:budget=140", .drop = cb_ref_h2o_long, .prompt = 160 },
    { .spec = "h2o:budget=24,drop=first-decode", .drop = cb_ref_h2o_first },
    { .spec = "h2o:budget=24,drop=chunk,chunk=32", .drop = cb_ref_h2o, .piece = 32 },
    { .spec = "h2o:budget=24,drop=chunk,chunk=9", .drop = cb_ref_h2o, .piece = 9 },
    { .spec = "h2o:budget=24,group=mean,recent=12", .drop = cb_ref_h2o_mean },
    { .spec = "h2o:budget=24,positions=rolled", .drop = cb_ref_h2o, .rolling = 1 },
    { .spec = "h2o:budget=140,positions=rolled",
      .drop = cb_ref_h2o_long,
      .rolling = 1,
      .prompt = 160 },
    { .spec = "h2o:budget=24,drop=chunk,chunk=32,positions=rolled",
      .drop = cb_ref_h2o,
      .rolling = 1,
      .piece = 32 },
    { .spec = "h2o:budget=24,drop=first-decode,positions=rolled",
      .drop = cb_ref_h2o_first,
      .rolling = 1 },
    { .spec = "snapkv:budget=24,window=8", .drop = cb_ref_snapkv },
    { .spec = "snapkv:budget=24,window=8,decode=bounded,tail=10", .drop = cb_ref_snapkv_bounded },
    { .spec = "snapkv:budget=24,window=8,floor=0.2", .drop = cb_ref_adakv },
    { .spec = "snapkv:budget=24,window=8,floor=0.2",
      .drop = cb_ref_adakv,
      .first = 10,
      .edge = 24 },
    { .spec = "snapkv:budget=24,window=8,floor=0.2,decode=bounded,tail=10",
      .drop = cb_ref_adakv_bounded },
    { .spec = "expected:budget=24,future=16", .drop = cb_ref_expected, .edge = 24 },
    { .spec = "expected:budget=24,future=16", .drop = cb_ref_expected, .first = 10 },
    { .spec = "expected:budget=24,future=16,eps=0,floor=1", .drop = cb_ref_expected_even },
    { .spec = "keydiff:budget=24,sink=2", .drop = cb_ref_keydiff, .edge = 24 },
    { .spec = "keydiff:budget=24,sink=2,drop=chunk,chunk=32,decode=bounded",
      .drop = cb_ref_keydiff_bounded,
      .piece = 32 },
    { .spec = "kvzip:budget=24,chunk=32", .drop = cb_ref_kvzip, .edge = 24 },
    { .spec = "kvzip:budget=24,chunk=32", .drop = cb_ref_kvzip, .first = 10 },
    { .spec = "kvzip:budget=24,chunk=32,among=layer,recent=6", .drop = cb_ref_kvzip_layer },
    { .spec = "lm-infinite:sink=4,window=21", .drop = cb_ref_streaming, .ceiling = 21, .piece = 1 },
    { .spec = "lm-infinite:sink=0,window=25",
      .drop = cb_ref_window,
      .ceiling = 25,
      .piece = 1,
      .first = 10 },
    { .spec = "roco:budget=24,stride=16,exempt=0.25,sink=2,tail=5",
      .drop = cb_ref_roco,
      .piece = 16 },
    { .spec = "roco:budget=24,stride=9,exempt=0.25,sink=2,tail=5",
      .drop = cb_ref_roco,
      .piece = 9,
      .first = 10 },
    { .spec = "duo:heads=1+2,sink=4,recent=20", .drop = cb_ref_duo },
    { .spec = "duo:heads=1+2,sink=4,recent=20,chunk=32", .drop = cb_ref_duo, .piece = 32 },
    { .spec = "pyramidkv:budget=12,window=2,beta=5", .drop = cb_ref_pyramid },
    { .spec = "pyramidkv:budget=12,window=2,beta=5,decode=bounded,tail=10",
      .drop = cb_ref_pyramid_bounded },
    { .spec = "pyramidkv:budget=12,window=2,shape=entropy,measure=prompt",
      .drop = cb_ref_pyramid_entropy },
    { .spec = "pyramidkv:budget=12,window=2,shape=gini,measure=prompt",
      .drop = cb_ref_pyramid_gini,
      .first = 9 },
    { .spec = "d2o:budget=24,sink=2", .drop = cb_ref_d2o, .first = 10 },
    { .spec = "d2o:budget=0.2,sink=2", .drop = cb_ref_d2o_share, .first = 3 },
    { .spec = "snapkv:budget=24,window=8", .drop = cb_ref_snapkv, .first = 10 },
    { .spec = "simlayerkv:sink=2,recent=10", .drop = cb_ref_sim_decode, .first = 9 },
    { .spec = "streamingllm:budget=24", .drop = cb_ref_streaming, .rolling = 1, .first = 10 },
    { .spec = "h2o:budget=24", .drop = cb_ref_h2o, .first = 23 },
    { .spec = "window:budget=24", .drop = cb_ref_window, .window = 24, .edge = 24 },
    { .spec = "streamingllm:budget=24", .drop = cb_ref_streaming, .rolling = 1, .edge = 24 },
    { .spec = "h2o:budget=24", .drop = cb_ref_h2o, .edge = 24 },
    { .spec = "snapkv:budget=24,window=8", .drop = cb_ref_snapkv, .edge = 24 },
    { .spec = "tova:budget=24", .drop = cb_ref_tova, .edge = 24 },
    { .spec = "d2o:budget=24,sink=2,layers=first2", .drop = cb_ref_d2o_first2, .edge = 26 },
    { .spec = "tova:budget=24", .drop = cb_ref_tova },
    { .spec = "d2o:budget=24,sink=2", .drop = cb_ref_d2o },
    { .spec = "d2o:budget=24,sink=2,merge=avg,layers=uniform", .drop = cb_ref_d2o_average },
    { .spec = "d2o:budget=0.2,sink=2", .drop = cb_ref_d2o_share },
    { .spec = "d2o:budget=0.2,sink=2,layers=gate", .drop = cb_ref_d2o_gate },
    { .spec = "d2o:budget=24,sink=2,layers=gate,alpha=5", .drop = cb_ref_d2o_gate_5, .first = 10 },
    { .spec = "d2o:budget=0.2,sink=2,layers=paper,alpha=2", .drop = cb_ref_d2o_paper },
    { .spec = "d2o:budget=24,sink=2,layers=first2", .drop = cb_ref_d2o_first2 },
    { .spec = "d2o:budget=0.2,sink=2,drop=first-decode", .drop = cb_ref_d2o_late },
    { .spec = "d2o:budget=24,sink=2,merge=off", .drop = cb_ref_d2o_drop },
    { .spec = "d2o:budget=24,sink=2,merge=printed", .drop = cb_ref_d2o_printed },
    { .spec = "d2o:budget=24,sink=2,merge=code", .drop = cb_ref_d2o_code },
    { .spec = "d2o:budget=24,sink=2,similar=values", .drop = cb_ref_d2o_by_values },
    { .spec = "d2o:budget=24,sink=2,similar=each", .drop = cb_ref_d2o_by_each, .first = 10 },
    { .spec = "d2o:budget=24,sink=2,merge_sinks=0", .drop = cb_ref_d2o_sinks },
    { .spec = "d2o:budget=24,sink=2,merge_keys=0,protect=2", .drop = cb_ref_d2o_values },
    { .spec = "pyramidinfer:recent=0.1,decay=0.5,context=8,sink=2,weight=1.5,gen_decay=0.3",
      .drop = cb_ref_pyramidinfer,
      .pass = cb_ref_pyramidinfer_pass },
    { .spec = "pyramidinfer:recent=0.25,decay=0.7,interval=2,context=0,block=5,keep=0.7",
      .drop = cb_ref_pyramidinfer_rare,
      .pass = cb_ref_pyramidinfer_rare_pass,
      .first = 10 },
    { .spec = "minicache:retain=24,tail=10", .drop = cb_ref_minicache, .edge = 24 },
    { .spec = "minicache:start=0,t=0.3,retain=0.1,tail=7",
      .drop = cb_ref_minicache_share,
      .first = 10 },
    { .spec = "simlayerkv:sink=2,recent=10", .drop = cb_ref_sim_decode },
    { .spec = "simlayerkv:sink=2,recent=10,mode=prefill,window=6", .drop = cb_ref_sim_prefill },
    { .spec = "simlayerkv:sink=2,recent=10,layers=nonlazy", .drop = cb_ref_sim_nonlazy },
    { .spec = "simlayerkv:sink=2,recent=10,layers=nonlazy,mode=prefill,window=6",
      .drop = cb_ref_sim_nonlazy_prefill },
    { .spec = "simlayerkv:sink=2,recent=10,layers=pyramid", .drop = cb_ref_sim_pyramid },
    { .spec = "simlayerkv:sink=2,recent=10,layers=pyramid,mode=prefill,window=6",
      .drop = cb_ref_sim_pyramid_prefill },
};
enum { N_PAIR = sizeof pairs / sizeof *pairs };

static void same_slots(const struct cb_session *s, const struct slow *r, const char *when)
{
    int tok[CAP];

    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < r->hp.n_kv; h++) {
            const int n = cb_ref_left(r, l, h, tok);
            ck_assert_msg(n == s->bank.store[l].n[h], "%s: layer %d head %d: %d slots, expected %d",
                          when, l, h, s->bank.store[l].n[h], n);
            for (int i = 0; i < n; i++)
                ck_assert_msg(cb_store_pos(&s->bank.store[l], h, i) == tok[i],
                              "%s: layer %d head %d: slot %d holds token %d, expected %d", when, l,
                              h, i, cb_store_pos(&s->bank.store[l], h, i), tok[i]);
        }
}

static void same_logits(const struct cb_session *s, const struct slow *r, const char *when)
{
    const float *a = cb_session_logits(s);
    double diff = 0, size = 0;

    for (int i = 0; i < r->hp.n_vocab; i++) {
        diff = fmax(diff, fabs((double)a[i] - r->logits[i]));
        size = fmax(size, fabs(r->logits[i]));
    }
    ck_assert_msg(diff < 2e-4 * size, "%s: logits differ by %g of %g", when, diff, size);
}

/* A threshold that parts the layers of this text. */
static double part_layers(const struct slow *r, int mode)
{
    double lo = 1, hi = 0;
    for (int l = 0; l < LAYERS; l++) {
        double m = 0;
        for (int i = r->n - (mode ? 6 : 1); i < r->n; i++)
            m += cb_ref_ends(r, l, i, 2, 10) / (mode ? 6 : 1);
        lo = fmin(lo, m);
        hi = fmax(hi, m);
    }
    return (lo + hi) / 2;
}

static double d2o_gate(const struct slow *r)
{
    double lo = 1e9, hi = 0;
    for (int l = 0; l < LAYERS; l++) {
        lo = fmin(lo, cb_ref_variance(r, l));
        hi = fmax(hi, cb_ref_variance(r, l));
    }
    ck_assert(hi > 1.01 * lo);
    return (lo + hi) / 2;
}

static cb_model *open_model(const char *family)
{
    struct tiny t = cb_tiny_small(family);

    t.n_layer = LAYERS;
    return cb_toy_model(&t, "ref", 1);
}

/* The slow run's prompt, but for what is dropped at its end */
static void slow_prompt(const struct pair *t, struct slow *r, const int32_t *tok, int n)
{
    for (; t->piece && n > t->piece; tok += t->piece, n -= t->piece) {
        r->rolling = t->rolling;
        cb_slow_feed(r, tok, t->piece);
        t->drop(r, 1);
    }
    cb_slow_feed(r, tok, n);
}

static void run_pair(const struct pair *t, const char *family, int chunk, int n_prompt)
{
    cb_model *m = open_model(family);
    const int32_t *tok = cb_toy_text(m) + t->first;
    struct slow *r = cb_slow_new(m, CAP);
    char spec[128], when[192];
    const int prompt = n_prompt ? n_prompt : t->prompt ? t->prompt : PROMPT;
    const int end = prompt + STEPS;
    cb_session *s;

    snprintf(spec, sizeof spec, "%s", t->spec);
    cb_ref_reset();
    r->window = t->window;
    r->ceiling = t->ceiling;
    r->pass = t->pass;
    if (t->first) {
        cb_ref_threshold = 2; /* too short to decide */
        slow_prompt(t, r, tok - t->first, t->first);
        t->drop(r, 1);
        r->rolling = t->rolling;
    }
    slow_prompt(t, r, tok, prompt);
    if (!strncmp(spec, "simlayerkv", 10)) {
        cb_ref_threshold = part_layers(r, strstr(spec, "prefill") != NULL);
        snprintf(spec, sizeof spec, "%s,threshold=%.17g", t->spec, cb_ref_threshold);
    }
    if (strstr(spec, "layers=gate") || strstr(spec, "layers=paper")) {
        cb_ref_gate_at = d2o_gate(r);
        snprintf(spec, sizeof spec, "%s,gate=%.17g", t->spec, /* the paper's is no share */
                 cb_ref_gate_at * (strstr(spec, "paper") ? prompt : 1));
    }
    s = cb_toy_session(m, spec, "f32", chunk);
    if (t->first)
        ck_assert_ok(cb_session_prefill(s, tok - t->first, t->first, NULL));
    ck_assert_ok(cb_session_prefill(s, tok, prompt, NULL));
    same_logits(s, r, spec);
    t->drop(r, 1);
    same_slots(s, r, spec);
    r->rolling = t->rolling;
    for (int i = prompt; i < end; i++) {
        snprintf(when, sizeof when, "%s, %s, step %d", spec, family, i - prompt);
        cb_slow_feed(r, tok + i, 1);
        ck_assert_ok(cb_session_decode(s, tok[i]));
        same_logits(s, r, when);
        t->drop(r, 0);
        same_slots(s, r, when);
    }
    snprintf(when, sizeof when, "%s, %s, second turn", spec, family);
    slow_prompt(t, r, tok + end, SECOND);
    ck_assert_ok(cb_session_prefill(s, tok + end, SECOND, NULL));
    same_logits(s, r, when);
    t->drop(r, 1);
    same_slots(s, r, when);
    cb_slow_feed(r, tok + end + SECOND, 1);
    ck_assert_ok(cb_session_decode(s, tok[end + SECOND]));
    same_logits(s, r, when);
    cb_session_close(s);
    cb_slow_free(r);
    cb_model_close(m);
}

START_TEST(as_the_slow_run_with_a_mask)
{
    run_pair(&pairs[_i / 2], _i % 2 ? "qwen2" : "llama", _i % 2 ? 7 : 0, 0);
}
END_TEST

/* Prompts one token shorter than the budget, as long, and one longer. */
START_TEST(prompts_as_long_as_the_budget)
{
    for (int more = -1; pairs[_i].edge && more <= 1; more++)
        run_pair(&pairs[_i], "llama", 0, pairs[_i].edge + more);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mask");
    TCase *t = tcase_create("slow");

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, as_the_slow_run_with_a_mask, 0, 2 * N_PAIR);
    tcase_add_loop_test(t, prompts_as_long_as_the_budget, 0, N_PAIR);
    return cb_suite_run(suite);
}
