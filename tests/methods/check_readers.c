/* SPDX-License-Identifier: MIT */
/* check_readers.c - the table of readers: which layers of which methods each one gets, and what two
 * of them cannot share. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attention/reader_table.h"
#include "engine/session.h"
#include "kit/recipe.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { MOST = 64, CTX = 256 };

/* Ways of methods that have readers of their own */
static const char *const ways[] = {
    "streamingllm:budget=24,prefill=windowed",
    "streamingllm:budget=24,prefill=windowed,positions=kept",
    "h2o:budget=24,positions=rolled",
    "snapkv:budget=24,window=8,group=each",
    "omnikv:filter=1,budget=12,select=exp",
};
enum { N_WAY = sizeof ways / sizeof *ways };

static cb_model *open_model(void)
{
    struct tiny t = cb_tiny_small("llama");

    t.n_layer = 4;
    t.n_ctx = CTX;
    return cb_toy_model(&t, "cpu", 1);
}

static int number_of(const struct reader *r)
{
    int i = 0;

    while (cb_reader_at(i) && cb_reader_at(i) != r)
        i++;
    return i;
}

START_TEST(readers_have_names_of_their_own)
{
    int n = 0;

    for (; cb_reader_at(n); n++) {
        const struct reader *r = cb_reader_at(n);
        ck_assert_ptr_nonnull(r->name);
        ck_assert_msg(!r->claims == !n, "%s: only the first one has no claim", r->name);
        ck_assert_msg(!r->open == !r->state, "%s: a state is opened", r->name);
        ck_assert_msg(r->open || !r->close, "%s: closes what nobody opened", r->name);
        ck_assert_msg(!r->counts == !r->set_counts, "%s: counts", r->name);
        for (int i = 0; i < n; i++)
            ck_assert_str_ne(r->name, cb_reader_at(i)->name);
    }
    ck_assert_int_lt(n, MOST);
}
END_TEST

static void note_readers(const cb_session *s, int *used)
{
    for (int i = 0; i < s->attention.n_reading; i++)
        used[number_of(s->attention.reading[i].r)] = 1;
}

/* Models whose layers are read in a way of their own */
static const char *const families[] = { "family-deepseek32.json", "family-minimax-m3.json",
                                        "family-qwen4exp.json", "family-deepseek4.json",
                                        "family-mamba2.json" };

static void note_family(const char *recipe, int *used)
{
    char file[64];
    const struct cb_session_params p = { .n_ctx = 64 };
    struct recipe r;
    struct gguf_make made;
    cb_model *m;
    cb_session *s;

    snprintf(file, sizeof file, "readers.%d.tmp", (int)getpid());
    cb_recipe_open(&r, recipe);
    cb_recipe_make(&r, &made);
    cb_make_save(&made, file);
    cb_recipe_close(&r);
    ck_assert_msg(!cb_model_open(file, NULL, &m), "%s: %s", recipe, cb_error());
    unlink(file);
    ck_assert_msg(!cb_session_open(m, &p, &s), "%s: %s", recipe, cb_error());
    note_readers(s, used);
    cb_session_close(s);
    cb_model_close(m);
}

/* Every layer of every method has one reader, and every reader is some method's or some family's.
 */
START_TEST(every_reader_is_used)
{
    cb_model *m = open_model();
    int used[MOST] = { 0 };

    for (int i = 0; i < cb_setting_n_policy() + N_WAY; i++) {
        char spec[128];
        cb_session *s;
        if (!cb_setting_narrow(i, spec, sizeof spec))
            snprintf(spec, sizeof spec, "%s", ways[i - cb_setting_n_policy()]);
        s = cb_toy_session(m, spec, "f32", 0);
        note_readers(s, used);
        cb_session_close(s);
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        note_family(families[i], used);
    for (int i = 0; cb_reader_at(i); i++)
        ck_assert_msg(used[i], "nobody reads %s", cb_reader_at(i)->name);
    cb_model_close(m);
}
END_TEST

/* ---- two claims on a layer ---- */

/* Rows that are read in one way each */
static void ask_for(int way, int n_layer, struct layer_plan *row)
{
    static const int from[MOST] = { 0 };

    for (int l = 1; l < n_layer; l++)
        switch (way) {
        case 0:
            row[l].sketch = (struct sketch_plan){ .bits = 2, .k = 8, .recent = 8 };
            break;
        case 1:
            row[l].own_slots = 1;
            break;
        case 2:
            row[l].rolling = ROLL_COMPACT;
            break;
        case 3:
            row[l].far = (struct far_plan){
                .block = 4, .k = 2, .reps = 1, .local = 8, .sink = 1, .chunk = 8
            };
            break;
        case 4:
            row[l].cross = (struct cross_layer_plan){ .from = from, .sink = 1, .recent = 4 };
            break;
        case 5:
            row[l].pair = (struct pair_plan){ .tail = 4, .t = 0.5, .retain = 0.1 };
            break;
        case 6:
            row[l].choice.k = 4;
            break;
        default:
            row[0].choice.k = 4;
            row[l].reads = 0;
        }
}
enum { N_ASKED = 8 };

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int *asked = p->arg;

    for (int i = 0; i < 2; i++)
        ask_for(asked[i], sh->n_layer, row);
    return 0;
}

START_TEST(two_claims_are_refused_by_both_names)
{
    static const struct method_opt none = { .name = NULL };
    static const struct method both = {
        .name = "both", .opts = &none, .plan = plan_layers, .slot_floats = 4
    };
    const struct cb_session_params p = { .n_ctx = CTX, .type_k = "f32", .type_v = "f32" };
    cb_model *m = open_model();
    int asked[2];

    for (asked[0] = 0; asked[0] < N_ASKED; asked[0]++)
        for (asked[1] = asked[0] + 1; asked[1] < N_ASKED; asked[1]++) {
            cb_session *s;
            int named = 0;
            ck_assert_int_lt(cb_session_open_as(m, &p, &both, asked, &s), 0);
            ck_assert_msg(strstr(cb_error(), "is to be read in two ways: ") != NULL, "%d, %d: %s",
                          asked[0], asked[1], cb_error());
            for (int i = 0; cb_reader_at(i); i++)
                named += strstr(cb_error(), cb_reader_at(i)->name) != NULL;
            ck_assert_msg(named >= 2, "%s", cb_error());
        }
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("readers");
    TCase *t = tcase_create("readers");

    tcase_add_test(t, readers_have_names_of_their_own);
    tcase_add_test(t, every_reader_is_used);
    tcase_add_test(t, two_claims_are_refused_by_both_names);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
