/* SPDX-License-Identifier: MIT */
/* check_presets.c - presets that are refused, what is taken from the others, and the fingerprint
 * that tells for which model a preset is. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

static struct cb_model *open_tiny(int n_layer)
{
    struct tiny t = cb_tiny_small("qwen2");

    t.n_layer = n_layer;
    return cb_toy_model(&t, "cpu", 1);
}

static const char *const refused[][3] = {
    { "omnikv", "{\"filter\": []}", "must be a list of layers" },
    { "omnikv", "{\"filter\": [1, 1]}", "filter[1]" },
    { "omnikv", "{\"filter\": [1, 6]}", "layer up to 5" },
    { "omnikv", "{\"filter\": [-1]}", "filter[0]" },
    { "omnikv", "{\"filter\": [1.5]}", "filter[0]" },
    { "omnikv", "{\"filter\": \"1+2\"}", "must be a list" },
    { "omnikv", "[1, 2]", "must be a JSON object" },
    { "omnikv", "{\"filter\": [1], \"filter\": [2]}", "line 1" },
    { "omnikv", "{\"filter\": [1]", "line 1" },
    { "omnikv", "{\"method\": \"pod\", \"filter\": [1]}", "is of method pod" },
    { "omnikv", "{\"method\": 3, \"filter\": [1]}", "is of no method" },
    { "omnikv",
      "{\"model\": {\"fingerprint\": \"0123456789abcdef\", \"name\": \"Other\"}, \"filter\": [1]}",
      "another model, not of " },
    { "omnikv", "{\"model\": {}, \"filter\": [1]}", "model.fingerprint" },
    { "omnikv", "{\"model\": 7, \"filter\": [1]}", "model.fingerprint" },
    { "omnikv:filter=1", "{\"filter\": [1]}", "either, not both" },
    { "simlayerkv", "{\"threshold\": 2, \"sink\": 4, \"recent\": 9}", "threshold must be" },
    { "simlayerkv", "{\"threshold\": 0.5, \"sink\": 4}", "recent must be" },
    { "pod", "{\"method\": \"omnikv\", \"start\": []}", "is of method omnikv" },
    { "d2o:layers=preset", "{\"spread\": [1, 2]}", "not of this model" },
    { "d2o:layers=preset", "{\"spread\": [0, 0, 0, 0, 0, 0]}", "all 0" },
    { "d2o", "{\"spread\": [1, 1, 1, 1, 1, 1]}", "goes with layers=preset" },
    { "pyramidkv:shape=gini", "{\"gini\": [1, 2]}", "not of this model" },
};

static const char *with_file(const char *spec, const char *json)
{
    static char text[160];
    char file[64];
    FILE *f;

    snprintf(file, sizeof file, "calibrate.%d.json", (int)getpid());
    f = fopen(file, "w");
    ck_assert_ptr_nonnull(f);
    fputs(json, f);
    ck_assert(!fclose(f));
    snprintf(text, sizeof text, "%s%cpreset=%s", spec, strchr(spec, ':') ? ',' : ':', file);
    return text;
}

START_TEST(bad_presets_are_refused)
{
    struct cb_model *m = open_tiny(6);
    const struct cb_session_params p = { .policy = with_file(refused[_i][0], refused[_i][1]) };

    cb_toy_refused(m, &p, refused[_i][2]);
    unlink(strstr(p.policy, "preset=") + 7);
    cb_model_close(m);
}
END_TEST

/* ---- files that somebody names ---- */

static const char *const readers[] = { "omnikv", "simlayerkv",        "pod",
                                       "duo",    "d2o:layers=preset", "pyramidkv:shape=gini" };
enum { N_READER = sizeof readers / sizeof *readers };

static char *spec(int reader, const char *file)
{
    static char text[160];

    snprintf(text, sizeof text, "%s%cpreset=%s", readers[reader],
             strchr(readers[reader], ':') ? ',' : ':', file);
    return text;
}

static int has_file(const struct method *m, const char **unit)
{
    for (int i = 0; m->opts[i].name; i++) {
        *unit = m->opts[i].unit ? m->opts[i].unit : "";
        if (m->opts[i].kind == OPT_FILE || !strcmp(*unit, "file"))
            return m->opts[i].kind == OPT_FILE ? 1 : -1;
    }
    return 0;
}

/* The list above has every method with an option that names a file, and each such option says so.
 */
START_TEST(readers_of_files)
{
    const struct method *m;
    const char *unit;
    int n = 0;

    for (int i = 0; (m = cb_method_at(i)); i++) {
        const int has = has_file(m, &unit);
        ck_assert_msg(has >= 0, "%s: an option of unit file is no OPT_FILE", m->name);
        n += has;
    }
    ck_assert_int_eq(n, N_READER);
    for (int i = 0; (m = cb_prompt_method_at(i)); i++)
        ck_assert_msg(!has_file(m, &unit), "prefill %s: names a file", m->name);
}
END_TEST

/* What is no regular file is neither waited for nor read. */
START_TEST(no_regular_files)
{
    struct cb_model *m = open_tiny(6);
    struct cb_session_params p = { .policy = spec(_i, "/dev/zero") };

    cb_toy_refused(m, &p, "is not a regular file");
    p.policy = spec(_i, "/");
    cb_toy_refused(m, &p, "is not a regular file");
    unlink("presets.fifo");
    ck_assert(!mkfifo("presets.fifo", 0600));
    p.policy = spec(_i, "presets.fifo");
    cb_toy_refused(m, &p, "is not a regular file");
    unlink("presets.fifo");
    cb_model_close(m);
}
END_TEST

/* Nothing of a file that is no preset stands in an error. */
START_TEST(errors_quote_nothing)
{
    static const char *const text[] = {
        "zanzibar:x:0:0\n", "{\"method\": \"zanzibar\"}", "\"zanzibar\"",
        "{\"model\": {\"name\": \"zanzibar\", \"fingerprint\": \"zanzibar\"}}",
        ("{\"filter\": [\"zanzibar\"], \"start\": \"zanzibar\", \"alpha\": [\"zanzibar\"], "
         "\"spread\": \"zanzibar\", \"gini\": {\"zanzibar\": 1}, \"threshold\": \"zanzibar\"}")
    };
    struct cb_model *m = open_tiny(6);

    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        const struct cb_session_params p = { .policy = with_file(readers[_i], text[i]) };
        cb_toy_refused(m, &p, "preset");
        ck_assert_ok(strstr(cb_error(), "zanzibar"));
        unlink(strstr(p.policy, "preset=") + 7);
    }
    cb_model_close(m);
}
END_TEST

START_TEST(too_long_a_file)
{
    struct cb_model *m = open_tiny(6);
    const struct cb_session_params p = { .policy = with_file("omnikv", "{\"filter\": [1]}") };
    const char *file = strstr(p.policy, "preset=") + 7;

    ck_assert(!truncate(file, (4 << 20) + 1));
    cb_toy_refused(m, &p, "has more than 4194304 bytes");
    unlink(file);
    cb_model_close(m);
}
END_TEST

/* A guest names presets in the model's folder, with or without .json, and nothing else. */
START_TEST(guests_name_presets)
{
    static const char *const paths[] = { "/etc/passwd", "./presets.guest.json",
                                         "../presets.guest.json", "x/../presets.guest.json" };
    struct cb_model *m = open_tiny(6);
    struct cb_session_params p = { .guest = 1 };
    FILE *f = fopen("presets.guest.json", "w");
    cb_session *s;

    ck_assert_ptr_nonnull(f);
    fputs("{\"filter\": [1, 4]}", f);
    ck_assert(!fclose(f));
    for (int i = 0; i < N_READER; i++)
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
            p.policy = spec(i, paths[k]);
            cb_toy_refused(m, &p, "not a path");
        }
    p.policy = "omnikv:preset=presets.guest";
    cb_toy_refused(m, &p, "there is no preset of this name"); /* nor a folder of presets */
    free(m->preset_dir);
    m->preset_dir = strdup(".");
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_int_ge(s->policy->plan[2].reads, 0);
    cb_session_close(s);
    p.policy = "omnikv:preset=presets.guest.json";
    ck_assert_ok(cb_session_open(m, &p, &s));
    cb_session_close(s);
    p.policy = "omnikv:preset=..";
    cb_toy_refused(m, &p, "cannot be read");
    p.policy = "omnikv:preset=";
    cb_toy_refused(m, &p, "cannot be read");
    p.policy = "omnikv:preset=presets.none";
    cb_toy_refused(m, &p, "there is no preset of this name");
    unlink("presets.guest.json");
    cb_model_close(m);
}
END_TEST

/* What a preset says is as if it had been given, and what is given wins. */
START_TEST(presets_are_taken)
{
    struct cb_model *m = open_tiny(6);
    struct cb_session_params p = { .policy = with_file("omnikv", "{\"filter\": [1, 4]}") };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    for (int l = 0; l < 6; l++)
        ck_assert_int_eq(s->policy->plan[l].reads >= 0, l == 2 || l == 3 || l == 5);
    ck_assert_ptr_nonnull(strstr(cb_session_note(s), "preset"));
    cb_session_close(s);
    p.policy =
        with_file("simlayerkv:recent=20", "{\"threshold\": 0.25, \"sink\": 3, \"recent\": 9}");
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ptr_nonnull(strstr(cb_session_note(s), "threshold 0.25, 20 recent"));
    ck_assert_ptr_null(strstr(cb_session_note(s), "drops little"));
    cb_session_close(s);
    p.policy = with_file("simlayerkv", "{\"threshold\": 0.25, \"sink\": 3, \"recent\": 9, "
                                       "\"made\": {\"trial\": {\"read_share\": 0.972}}}");
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ptr_nonnull(strstr(cb_session_note(s), "drops little: 97 % was read"));
    cb_session_close(s);
    p.policy =
        with_file("simlayerkv:threshold=0.5", "{\"threshold\": 0.25, \"sink\": 3, \"recent\": 9}");
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ptr_nonnull(strstr(cb_session_note(s), "threshold 0.5, 9 recent"));
    cb_session_close(s);
    unlink(strstr(p.policy, "preset=") + 7);
    cb_model_close(m);
}
END_TEST

/* d2o with a preset: budgets known before the prompt, e^-spread each; the sum stays. */
START_TEST(d2o_splits_by_a_preset)
{
    static const double spread[6] = { 0, .1, .2, .4, .6, 1 };
    struct cb_model *m = open_tiny(6);
    const struct cb_session_params p = { .n_ctx = 512,
                                         .policy = with_file(
                                             "d2o:layers=preset,budget=100,sink=0,decode=grow",
                                             "{\"spread\": [0, 0.1, 0.2, 0.4, 0.6, 1]}") };
    double sum = 0;
    int32_t ids[300];
    cb_session *s;

    for (int i = 0; i < 300; i++)
        ids[i] = 3 + i * 7 % 90;
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ok(cb_session_prefill(s, ids, 300, NULL));
    for (int l = 0; l < 6; l++)
        sum += exp(-spread[l]);
    for (int l = 0; l < 6; l++) {
        const double want = 600 * exp(-spread[l]) / sum;
        const int n = (int)floor(want * .75) + (int)floor(want * .25);
        ck_assert_int_eq(cb_store_max_len(&s->bank.store[l]), n);
        ck_assert_int_eq(s->policy->m->slots(s->policy, l, 300, 0), n);
    }
    cb_session_close(s);
    unlink(strstr(p.policy, "preset=") + 7);
    cb_model_close(m);
}
END_TEST

/* The same for every type of the matrices, another for another shape or vocabulary. */
START_TEST(fingerprints)
{
    struct tiny t = cb_tiny_small("qwen2"), u = cb_tiny_small("smollm");
    struct cb_model *m[4];

    m[0] = cb_toy_model(&t, "cpu", 1);
    t.type = DT_Q8_0;
    m[1] = cb_toy_model(&t, "cpu", 1);
    t.n_layer = 3;
    m[2] = cb_toy_model(&t, "cpu", 1);
    m[3] = cb_toy_model(&u, "cpu", 1);
    ck_assert_uint_eq(m[0]->fingerprint, m[1]->fingerprint);
    ck_assert_uint_ne(m[0]->fingerprint, m[2]->fingerprint);
    ck_assert_uint_ne(m[0]->fingerprint, m[3]->fingerprint);
    for (int i = 0; i < 4; i++)
        cb_model_close(m[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("presets");
    TCase *c = tcase_create("all");

    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, bad_presets_are_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(c, readers_of_files);
    tcase_add_loop_test(c, no_regular_files, 0, N_READER);
    tcase_add_loop_test(c, errors_quote_nothing, 0, N_READER);
    tcase_add_test(c, too_long_a_file);
    tcase_add_test(c, guests_name_presets);
    tcase_add_test(c, presets_are_taken);
    tcase_add_test(c, d2o_splits_by_a_preset);
    tcase_add_test(c, fingerprints);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
