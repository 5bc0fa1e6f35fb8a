/* SPDX-License-Identifier: MIT */
/* check_turns.c - policies over several turns: what a second prompt finds, decides and drops. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/toy.h"
#include "kit/written.h"

enum { WIDE = CB_WRITTEN_WIDE };

/* A model of one layer and one head, and a session whose tokens attend to whatever the test says.
 */
struct turn {
    cb_model *m;
    cb_session *s;
    int n; /* tokens fed */
};

static void begin(struct turn *t, const char *policy)
{
    t->m = cb_written_model(1, 1, 1, WIDE);
    t->s = cb_written_session(t->m, policy, 64);
    t->n = 0;
}

static void end(struct turn *t)
{
    cb_session_close(t->s);
    cb_model_close(t->m);
}

/* n tokens, all of which attend to token `to` with this logit, and with 0 to the others */
static void feed(struct turn *t, int n, int to, double logit)
{
    double x[WIDE];
    for (int i = 0; i < n; i++)
        x[i] = logit;
    cb_written_logits(t->s, x, 1, &to, 1, n, t->n);
    t->n += n;
}

static void holds_all(const struct turn *t)
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
    struct turn t;

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
    struct turn t;

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
    struct turn t;

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
    struct turn t;
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
    struct turn t;

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

int main(void)
{
    Suite *suite = suite_create("turns");
    TCase *t = tcase_create("simlayerkv");
    SRunner *r;
    int failed;

    suite_add_tcase(suite, t);
    tcase_add_test(t, a_short_prompt_decides_nothing);
    tcase_add_test(t, the_shortest_prompt_that_decides);
    tcase_add_test(t, a_timeline_without_a_prompt_decides_nothing);
    tcase_add_loop_test(t, a_lazy_layer_stays_lazy, 0, 2);
    tcase_add_test(t, a_growing_lazy_layer_is_cut_in_each_turn);
    tcase_add_loop_test(t, lazy_layers_are_cut_before_keys_are_quantised, 0, 2);
    r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
