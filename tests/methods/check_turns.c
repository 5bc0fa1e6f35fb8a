/* SPDX-License-Identifier: MIT */
/* check_turns.c - policies over several turns: what a second prompt finds, decides and drops. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "kit/written.h"

enum { WIDE = CB_WRITTEN_WIDE };

/* A model of one layer and one head, and a session whose tokens attend to whatever the test says.
 */
struct completion {
    cb_model *m;
    cb_session *s;
    int n; /* tokens fed */
};

static void begin(struct completion *t, const char *policy)
{
    t->m = cb_written_model(1, 1, 1, WIDE);
    t->s = cb_written_session(t->m, policy, 64);
    t->n = 0;
}

static void end(struct completion *t)
{
    cb_session_close(t->s);
    cb_model_close(t->m);
}

/* n tokens, all of which attend to token `to` with this logit, and with 0 to the others */
static void feed(struct completion *t, int n, int to, double logit)
{
    double x[WIDE];
    for (int i = 0; i < n; i++)
        x[i] = logit;
    cb_written_logits(t->s, x, 1, &to, 1, n, t->n);
    t->n += n;
}

static void holds_all(const struct completion *t)
{
    ck_assert_int_eq(t->s->bank.store[0].n[0], t->n);
}

#define HOLDS(t, ...)                                                                              \
    cb_written_holds((t)->s, 0, 0, (const int[]){ __VA_ARGS__ },                                   \
                     (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)))

/* ---- simlayerkv ---- */

/* The first token after a prompt decides, if the context is then twice sink + recent. */
START_TEST(a_short_prompt_decides_nothing)
{
    struct completion t;

    begin(&t, "simlayerkv:sink=1,recent=2,threshold=0");
    feed(&t, 4, 0, 0);
    for (int i = 0; i < 6; i++) {
        feed(&t, 1, 0, 0);
        holds_all(&t);
    }
    feed(&t, 2, 0, 0);
    holds_all(&t);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 11, 12);
    end(&t);
    begin(&t, "simlayerkv:sink=1,recent=2,threshold=0");
    feed(&t, 5, 0, 0);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 4, 5);
    end(&t);
}
END_TEST

/* least=1, the paper's: one token outside sink + recent is enough */
START_TEST(the_shortest_prompt_that_decides)
{
    struct completion t;

    begin(&t, "simlayerkv:sink=1,recent=2,threshold=0,least=1");
    feed(&t, 3, 0, 0);
    holds_all(&t);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 2, 3);
    end(&t);
    begin(&t, "simlayerkv:sink=1,recent=2,threshold=0,least=1");
    feed(&t, 2, 0, 0);
    for (int i = 0; i < 5; i++)
        feed(&t, 1, 0, 0);
    holds_all(&t);
    end(&t);
}
END_TEST

START_TEST(a_timeline_without_a_prompt_decides_nothing)
{
    struct completion t;

    begin(&t, "simlayerkv:sink=1,recent=2,threshold=0,least=1");
    for (int i = 0; i < 8; i++)
        feed(&t, 1, 0, 0);
    holds_all(&t);
    end(&t);
}
END_TEST

/* A layer is tested after each prompt until it is lazy, and then stays lazy. */
START_TEST(a_lazy_layer_stays_lazy)
{
    static const char *const mode[] = { "decode", "prefill" };
    struct completion t;
    char spec[96];

    snprintf(spec, sizeof spec, "simlayerkv:sink=1,recent=2,threshold=0.9,least=1,window=1,mode=%s",
             mode[_i]);
    begin(&t, spec);
    feed(&t, 5, 2, 5); /* looks at a token between */
    feed(&t, 1, 2, 5);
    holds_all(&t);
    feed(&t, 4, 0, 5); /* at the first one */
    feed(&t, 1, 0, 5);
    HOLDS(&t, 0, 9, 10);
    feed(&t, 4, 11, 5); /* at the first of four new ones */
    if (_i)
        HOLDS(&t, 0, 13, 14);
    else
        HOLDS(&t, 0, 9, 10, 11, 12, 13, 14);
    feed(&t, 1, 11, 5);
    HOLDS(&t, 0, 14, 15);
    end(&t);
}
END_TEST

/* decode=grow: a lazy layer is cut once after each prompt */
START_TEST(a_growing_lazy_layer_is_cut_in_each_turn)
{
    struct completion t;

    begin(&t, "simlayerkv:sink=1,recent=2,threshold=0,least=1,decode=grow");
    feed(&t, 5, 0, 0);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 4, 5);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 4, 5, 6);
    feed(&t, 3, 0, 0);
    HOLDS(&t, 0, 4, 5, 6, 7, 8, 9);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 9, 10);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 9, 10, 11);
    end(&t);
}
END_TEST

/* Layers are tested and cut before anything is quantised. */
START_TEST(lazy_layers_are_cut_before_keys_are_quantised)
{
    enum { N = 100, PROMPT = 80, OUT = 2 * 2 * 32 };
    static const char *const types[] = { "f16", "kivi2:32" };
    const struct hparams hp = { .n_layer = 2, .n_head = 2, .n_kv = 1, .hd = 32, .n_ctx_train = N };
    float out[2][2][OUT];
    int kept[2][2];

    for (int i = 0; i < 2; i++) {
        struct toy t;
        cb_toy_open(&t, "ref", 1, &hp, N,
                    _i ? "simlayerkv:sink=2,recent=34,threshold=-1"
                       : "simlayerkv:sink=2,recent=34,threshold=1",
                    types[i], types[i], 5);
        cb_toy_prompt(&t, PROMPT, 16, NULL);
        ck_assert(!cb_kivi_any(&t.s->bank.store[0]));
        cb_toy_decode(&t, out[i][0]);
        kept[i][0] = t.s->bank.store[0].n[0];
        if (i)
            ck_assert_int_eq(t.s->bank.store[0].kivi->head[0].n_k, _i ? 32 : 64);
        cb_toy_decode(&t, out[i][1]);
        kept[i][1] = t.s->bank.store[0].n[0];
        cb_toy_close(&t);
    }
    ck_assert(!memcmp(out[0][0], out[1][0], sizeof out[0][0]));
    ck_assert(memcmp(out[0][1], out[1][1], sizeof out[0][1]));
    ck_assert(!memcmp(kept[0], kept[1], sizeof kept[0]));
    ck_assert_int_eq(kept[0][1], _i ? 36 : PROMPT + 2);
}
END_TEST

/* ---- ties ---- */

/* Of equal scores the lower position is kept; under tova the newer. One token too many takes a way
 * of its own. */
START_TEST(equal_scores)
{
    struct completion t;

    for (int n = 5; n <= 6; n++) {
        begin(&t, "snapkv:budget=4,window=1,kernel=1");
        feed(&t, n, 0, 0);
        HOLDS(&t, 0, 1, 2, n - 1);
        end(&t);
        begin(&t, "tova:budget=4");
        feed(&t, n, 0, 0);
        HOLDS(&t, n - 4, n - 3, n - 2, n - 1);
        feed(&t, 1, 0, 0);
        HOLDS(&t, n - 3, n - 2, n - 1, n);
        end(&t);
    }
}
END_TEST

/* ---- budgets ---- */

/* A share of a short prompt that leaves no room after the sinks: the newest token stays. */
START_TEST(sinks_that_fill_the_budget)
{
    struct completion t;

    begin(&t, "streamingllm:budget=0.4,sink=4");
    feed(&t, 10, 0, 0);
    HOLDS(&t, 0, 1, 2, 9);
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 1, 2, 10);
    end(&t);
    begin(&t, "streamingllm:budget=5,sink=4");
    feed(&t, 6, 0, 0);
    HOLDS(&t, 0, 1, 2, 3, 5);
    end(&t);
}
END_TEST

/* Votes with a share of a short prompt that is less than the sinks, or the window */
START_TEST(ends_longer_than_the_budget)
{
    struct completion t;

    begin(&t, "snapkv:budget=0.4,window=1,sink=4,kernel=1");
    feed(&t, 10, 0, 0);
    HOLDS(&t, 0, 1, 2, 9);
    end(&t);
    begin(&t, "snapkv:budget=0.2,window=4,kernel=1");
    feed(&t, 10, 0, 0);
    HOLDS(&t, 8, 9);
    end(&t);
}
END_TEST

/* decode=bounded limits all slots to budget + tail. After a short prompt more generated tokens fit.
 */
START_TEST(a_bounded_tail_after_a_short_prompt)
{
    struct completion t;

    begin(&t, "snapkv:budget=6,window=1,kernel=1,decode=bounded,tail=2");
    feed(&t, 3, 0, 0);
    for (int i = 0; i < 5; i++) {
        feed(&t, 1, 0, 0);
        holds_all(&t);
    }
    feed(&t, 1, 0, 0);
    HOLDS(&t, 0, 1, 2, 4, 5, 6, 7, 8);
    end(&t);
}
END_TEST

/* pod with snap=: prompts as long as that, and one token longer */
START_TEST(prompts_around_pods_snap)
{
    struct completion t;

    begin(&t, "pod:blocks=0,sinks=1,recent=4,snap=4,window=1");
    feed(&t, 4, 0, 0);
    HOLDS(&t, 0, 1, 2, 3);
    end(&t);
    begin(&t, "pod:blocks=0,sinks=1,recent=4,snap=4,window=1");
    feed(&t, 5, 0, 5);
    HOLDS(&t, 0, 1, 2, 4);
    end(&t);
}
END_TEST

/* Prompts as long as the budget, and one token longer: 10 a layer beside the window are then 11 to
 * 9, as there are no more than 11. */
START_TEST(prompts_around_a_pyramids_budget)
{
    const struct hparams hp = { .n_layer = 4, .n_head = 2, .n_kv = 1, .hd = 4, .n_ctx_train = 64 };
    static const int want[] = { 13, 12, 12, 11 };
    struct toy t;

    for (int n = 11; n <= 13; n++) {
        cb_toy_open(&t, "ref", 1, &hp, 64, "pyramidkv:budget=12,window=2,beta=5", "f32", "f32", 5);
        cb_toy_prompt(&t, n, 16, NULL);
        for (int l = 0; l < 4; l++)
            ck_assert_int_eq(t.s->bank.store[l].n[0], n < 13 ? n : want[l]);
        cb_toy_close(&t);
    }
}
END_TEST

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

/* protect=compat: the lowest two layers and the last keep all, beside the budget. */
START_TEST(layers_that_d2o_protects)
{
    const struct hparams hp = { .n_layer = 5, .n_head = 2, .n_kv = 1, .hd = 4, .n_ctx_train = 64 };
    static const int want[] = { 40, 40, 12, 12, 40 };
    struct toy t;

    cb_toy_open(&t, "ref", 1, &hp, 64, "d2o:budget=0.2,layers=uniform,protect=compat", "f32", "f32",
                5);
    cb_toy_prompt(&t, 40, 16, NULL);
    for (int l = 0; l < 5; l++)
        ck_assert_int_eq(t.s->bank.store[l].n[0], want[l]);
    cb_toy_close(&t);
}
END_TEST

/* A layer's part of d2o's budget is at least a hundredth of the tokens. */
START_TEST(the_least_part_of_a_budget)
{
    const struct hparams hp = { .n_layer = 2, .n_head = 1, .n_kv = 1, .hd = 4, .n_ctx_train = 640 };
    static const char file[] = "check_turns_d2o.json";
    struct toy t;

    write_file(file, "{\"spread\": [0, 30]}");
    cb_toy_open(&t, "ref", 1, &hp, 640,
                "d2o:budget=0.1,merge=off,layers=preset,preset=check_turns_d2o.json", "f32", "f32",
                5);
    remove(file);
    cb_toy_prompt(&t, 600, 64, NULL); /* 120 tokens: 114 and 6, of which a quarter are recent */
    ck_assert_int_eq(t.s->bank.store[0].n[0], 4 + 85 + 28);
    ck_assert_int_eq(t.s->bank.store[1].n[0], 4 + 4 + 1);
    cb_toy_close(&t);
}
END_TEST

/* The budgets of a later prompt count the tokens that upper layers are still to get. */
START_TEST(a_pyramid_that_grows_upwards)
{
    static const char json[] = "{\"gini\": [1, 9]}", file[] = "check_turns.json";
    const struct hparams hp = { .n_layer = 2, .n_head = 2, .n_kv = 1, .hd = 4, .n_ctx_train = 64 };
    struct toy t;

    write_file(file, json);
    cb_toy_open(&t, "ref", 1, &hp, 64,
                "pyramidkv:budget=0.3,window=2,shape=gini,preset=check_turns.json", "f32", "f32",
                5);
    remove(file);
    cb_toy_prompt(&t, 40, 16, NULL); /* 12 tokens a layer, 10 beside the window: 2 and 18 of 20 */
    ck_assert_int_eq(t.s->bank.store[0].n[0], 4);
    ck_assert_int_eq(t.s->bank.store[1].n[0], 20);
    cb_toy_prompt(&t, 20, 16, NULL); /* 18: 16 a layer, 3.2 and 28.8, which layer 1 has */
    ck_assert_int_eq(t.s->bank.store[0].n[0], 5);
    ck_assert_int_eq(t.s->bank.store[1].n[0], 31);
    cb_toy_close(&t);
}
END_TEST

/* ---- every policy: cleared, failed ---- */

enum { LONG = 150, SHORT = 40, MORE = 60, STEPS = 6 };

/* Ways of some, besides */
static const char *const ways[] = {
    "streamingllm:budget=24,prefill=windowed",
    "h2o:budget=0.3,drop=chunk,chunk=16",
    "h2o:budget=24,drop=first-decode",
    "h2o:budget=24,positions=rolled",
    "snapkv:budget=0.4,window=8",
    "snapkv:budget=24,window=8,decode=bounded,tail=3",
    "snapkv:budget=24,window=8,group=each",
    "omnikv:filter=1,budget=12,select=uniform,window=5",
    "pyramidkv:budget=0.3",
    "simlayerkv:sink=2,recent=8,threshold=0.5",
    "simlayerkv:sink=2,recent=25,threshold=-1", /* SHORT decides nothing */
    "simlayerkv:sink=2,recent=8,threshold=0.5,mode=prefill",
    "pod:blocks=0+2,sinks=2,recent=9,snap=20,window=4",
    "d2o:budget=0.2",
    "d2o:budget=24,layers=gate",
    "d2o:budget=24,drop=first-decode",
    "kvzip:budget=0.3,chunk=16",
    "roco:budget=24,stride=10",
    "pyramidinfer:recent=0.02,decay=0.4,context=8,block=2",
    "minicache:retain=10,tail=4",
    "minicache:start=0,retain=0.1,tail=1",
    "infinigen:alpha=0.1,dense=1",
};
enum { N_WAY = sizeof ways / sizeof *ways };

/* Every method, then the ways -> spec */
static const char *policy_at(int i, char spec[128])
{
    if (cb_setting_narrow(i, spec, 128))
        return spec;
    return ways[i - cb_setting_n_policy()];
}

static cb_model *open_family(const char *family)
{
    struct tiny t = cb_tiny_small(family);
    t.n_layer = 4;
    return cb_toy_model(&t, "cpu", 2);
}

static cb_model *open_model(void)
{
    return open_family("qwen2");
}

/* A prompt and some tokens; logits after the last -> out[n_vocab] */
static void converse(cb_session *s, const int32_t *tok, int prompt, float *out)
{
    ck_assert_ok(cb_session_prefill(s, tok, prompt, NULL));
    for (int i = 0; i < STEPS; i++)
        ck_assert_ok(cb_session_decode(s, tok[prompt + i]));
    memcpy(out, cb_session_logits(s), (size_t)s->model->hp.n_vocab * sizeof *out);
}

/* A long prompt, cleared, then a shorter one: as if there had been no other. */
START_TEST(cleared_before_a_shorter_prompt)
{
    cb_model *m = open_model();
    const int32_t *tok = cb_toy_text(m);
    char spec[128];
    const char *policy = policy_at(_i, spec);
    cb_session *a = cb_toy_session(m, policy, "f32", 0), *b = cb_toy_session(m, policy, "f32", 0);
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);

    converse(a, tok, LONG, x);
    cb_session_clear(a);
    converse(a, tok + 7, SHORT, x);
    converse(b, tok + 7, SHORT, y);
    ck_assert_msg(!memcmp(x, y, bytes), "%s", policy);
    converse(a, tok + 90, MORE, x);
    converse(b, tok + 90, MORE, y);
    ck_assert_msg(!memcmp(x, y, bytes), "%s: second turn", policy);
    cb_session_close(a);
    cb_session_close(b);
    cb_model_close(m);
    free(x);
    free(y);
}
END_TEST

struct stop {
    int calls, after; /* the callback stops the feed at call `after` */
};

static int stop(void *arg, int64_t done, int64_t total)
{
    struct stop *s = arg;
    (void)done;
    (void)total;
    return ++s->calls > s->after;
}

/* A second prompt that is stopped half way leaves what was before it, or nothing. */
static void stop_feeds(const char *family, const char *policy)
{
    cb_model *m = open_family(family);
    const int32_t *tok = cb_toy_text(m);
    cb_session *a = cb_toy_session(m, policy, "f32", 16);
    cb_session *b = cb_toy_session(m, policy, "f32", 16);
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);

    for (int after = 1; after < 14; after += 4) {
        struct stop how_far = { .after = after };
        const struct cb_prefill how = { .progress = stop, .progress_arg = &how_far };
        cb_session_clear(a);
        cb_session_clear(b);
        converse(a, tok, LONG, x);
        ck_assert_int_eq(cb_session_prefill(a, tok + 90, MORE, &how), CB_ECANCEL);
        if (cb_session_len(a)) {
            ck_assert_int_eq(cb_session_len(a), LONG + STEPS);
            converse(b, tok, LONG, y);
        }
        converse(a, tok + 200, SHORT, x);
        converse(b, tok + 200, SHORT, y);
        ck_assert_msg(!memcmp(x, y, bytes), "%s, %s: stopped after %d", family, policy, after);
    }
    cb_session_close(a);
    cb_session_close(b);
    cb_model_close(m);
    free(x);
    free(y);
}

START_TEST(a_stopped_feed)
{
    char spec[128];

    stop_feeds("qwen2", policy_at(_i, spec));
}
END_TEST

/* Layers with a window of the model's own drop tokens without a policy. */
START_TEST(a_stopped_feed_with_windows)
{
    stop_feeds("mistral", "full");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("turns");
    TCase *t = tcase_create("turns");

    suite_add_tcase(suite, t);
    tcase_add_test(t, a_short_prompt_decides_nothing);
    tcase_add_test(t, the_shortest_prompt_that_decides);
    tcase_add_test(t, a_timeline_without_a_prompt_decides_nothing);
    tcase_add_loop_test(t, a_lazy_layer_stays_lazy, 0, 2);
    tcase_add_test(t, a_growing_lazy_layer_is_cut_in_each_turn);
    tcase_add_loop_test(t, lazy_layers_are_cut_before_keys_are_quantised, 0, 2);
    tcase_add_test(t, equal_scores);
    tcase_add_test(t, sinks_that_fill_the_budget);
    tcase_add_test(t, ends_longer_than_the_budget);
    tcase_add_test(t, a_bounded_tail_after_a_short_prompt);
    tcase_add_test(t, prompts_around_pods_snap);
    tcase_add_test(t, prompts_around_a_pyramids_budget);
    tcase_add_test(t, layers_that_d2o_protects);
    tcase_add_test(t, the_least_part_of_a_budget);
    tcase_add_test(t, a_pyramid_that_grows_upwards);
    tcase_add_loop_test(t, cleared_before_a_shorter_prompt, 0, cb_setting_n_policy() + N_WAY);
    tcase_add_loop_test(t, a_stopped_feed, 0, cb_setting_n_policy() + N_WAY);
    tcase_add_test(t, a_stopped_feed_with_windows);
    tcase_set_timeout(t, 60);
    return cb_suite_run(suite);
}
