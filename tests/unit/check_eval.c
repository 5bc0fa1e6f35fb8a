/* SPDX-License-Identifier: MIT */
/* check_eval.c - items of the evaluation: read from files, filled into templates, made up. */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "eval/gen.h"
#include "eval/item.h"
#include "eval/metric.h"
#include "eval/published.h"
#include "kit/item_warnings.h"
#include "kit/suite.h"

/* ---- files ---- */

static char path[64];

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void setup(void)
{
    cb_item_begin();
    snprintf(path, sizeof path, "check_eval_%d.jsonl", (int)getpid());
}

static void teardown(void)
{
    unlink(path);
}

START_TEST(reads_the_three_forms)
{
    struct item_list x = { 0 };

    write_file(
        "{\"_id\":\"a-0\",\"dataset\":\"a\",\"prompt\":\"Some text.\\n\\nQuestion: "
        "why?\\nAnswer:\","
        "\"answers\":[\"so\"],\"metric\":\"qa_f1\",\"max_new\":9}\n"
        "\n"
        "{\"context\":\"C\",\"input\":\"Q\",\"answers\":[\"x\",\"y\"],\"dataset\":\"trec\","
        "\"all_classes\":[\"x\",\"z\"],\"_id\":\"b\"}\n"
        "{\"id\":7,\"dataset\":\"longbook_choice_eng\",\"context\":\"Book\",\"input\":\"Who\","
        "\"answer\":[\"two\"],\"options\":[\"one\",\"two\",\"three\",\"four\"]}\n");
    ck_assert_ok(cb_item_read(path, cb_item_warn, NULL, &x));
    ck_assert_str_eq(cb_item_warned, "");
    ck_assert_int_eq(x.n, 3);
    ck_assert_str_eq(x.at[0].id, "a-0");
    ck_assert_str_eq(x.at[0].context, "Some text.\n\n");
    ck_assert_str_eq(x.at[0].question, "Question: why?\nAnswer:");
    ck_assert_int_eq(x.at[0].max_new, 9);
    ck_assert_str_eq(x.at[0].metric->name, "qa_f1");
    ck_assert_int_eq(x.at[0].chat, 0);

    ck_assert_str_eq(x.at[1].task, "trec");
    ck_assert_str_eq(x.at[1].question, "\nQ");
    ck_assert_ptr_nonnull(strstr(x.at[1].context, "\n\nC"));
    ck_assert_int_eq(x.at[1].n_class, 2);
    ck_assert_int_eq(x.at[1].stop_at_line, 1);
    ck_assert_int_eq(x.at[1].chat, 0);
    ck_assert_int_eq(x.at[1].max_new, 64);

    ck_assert_str_eq(x.at[2].answer[0], "B");
    ck_assert_ptr_nonnull(strstr(x.at[2].question, "Who\nA. one\nB. two\nC. three\nD. four\n"));
    ck_assert_int_eq(x.at[2].max_new, 40);
    cb_item_list_free(&x);
}
END_TEST

START_TEST(bad_lines_are_named_and_the_others_count)
{
    struct item_list x = { 0 };

    write_file("{\"prompt\":\"p\",\"answers\":[\"a\"],\"metric\":\"em\"}\n"
               "{\"prompt\":\n"
               "[1]\n"
               "{\"prompt\":\"p\",\"answers\":[],\"metric\":\"em\"}\n"
               "{\"prompt\":\"p\",\"answers\":[\"a\"],\"metric\":\"magic\"}\n"
               "{\"context\":\"c\",\"answers\":[\"a\"],\"dataset\":\"hotpotaq\"}\n"
               "{\"context\":\"\",\"answers\":[\"a\"],\"dataset\":\"hotpotqa\"}\n"
               "{\"x\":1}\n"
               "{\"prompt\":\"\",\"answers\":[\"a\"],\"metric\":\"em\"}\n"
               "{\"prompt\":\"last\",\"answers\":3,\"metric\":\"last_number\"}");
    ck_assert_ok(cb_item_read(path, cb_item_warn, NULL, &x));
    ck_assert_int_eq(x.n, 2);
    ck_assert_int_eq(x.n_bad, 8);
    ck_assert_ptr_nonnull(strstr(cb_item_warned, ": line 2: "));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, ": line 3: not an object"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, ": line 4: answers: none"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, ": line 5: metric magic: unknown"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "did you mean hotpotqa?"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, ": line 9: prompt: empty"));
    ck_assert_str_eq(x.at[1].answer[0], "3");
    cb_item_list_free(&x);
}
END_TEST

START_TEST(files_that_hold_nothing_are_refused)
{
    struct item_list x = { 0 };

    write_file("\n\n");
    ck_assert_int_eq(cb_item_read(path, cb_item_warn, NULL, &x), CB_EFORMAT);
    ck_assert_int_eq(cb_item_read("/nonexistent/x.jsonl", cb_item_warn, NULL, &x), CB_EIO);
    cb_item_list_free(&x);
}
END_TEST

/* ---- templates ---- */

static int count_templates(const struct templates *t)
{
    int n = 0;
    while (cb_template_at(t, n))
        n++;
    return n;
}

START_TEST(templates_are_those_published)
{
    static const char *const plain[] = {
        "trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"
    };
    struct templates *t;
    int n_chat = 0;

    ck_assert_ok(cb_templates_open(&t));
    ck_assert_int_eq(count_templates(t), 21 + 11 + 18);
    for (int i = 0; i < 21; i++)
        n_chat += cb_template_at(t, i)->chat;
    ck_assert_int_eq(n_chat, 21 - 6);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        ck_assert_int_eq(cb_template_find(t, plain[i])->chat, 0);
    ck_assert_int_eq(cb_template_find(t, "gov_report")->max_new, 512);
    ck_assert_int_eq(cb_template_find(t, "narrativeqa")->max_new, 128);
    ck_assert_int_eq(cb_template_find(t, "samsum")->stop_at_line, 1);
    ck_assert_ptr_null(cb_template_find(t, "hotpot"));
    cb_templates_close(t);
}
END_TEST

START_TEST(a_missing_data_folder_is_named)
{
    struct templates *t;

    setenv("CTXBANK_DATA", "/nonexistent", 1);
    ck_assert_int_eq(cb_templates_open(&t), CB_EIO);
    ck_assert_ptr_nonnull(strstr(cb_error(), "/nonexistent"));
}
END_TEST

/* ---- made-up items ---- */

/* Stands for a tokenizer: a token a word, one more every seven letters of it, one a mark. */
static int count(void *arg, const char *text, size_t n)
{
    int tokens = 0, run = 0;

    (void)arg;
    for (size_t i = 0; i < n; i++) {
        if (isalpha((unsigned char)text[i])) {
            tokens += run % 7 == 0;
            run++;
        } else {
            tokens += !isspace((unsigned char)text[i]);
            run = 0;
        }
    }
    return tokens;
}

static struct haystack hay;

/* Sentences of 3 to 12 words that are all different. */
static void make_hay(void)
{
    struct buf b = { 0 };
    struct rng r = { 5 };
    int w = 0;

    for (int i = 0; i < 400; i++) {
        const int n = 3 + cb_rng_below(&r, 10);
        for (int j = 0; j < n; j++, w++)
            cb_buf_print(&b, "%s%c%c%c%c", j ? " " : "", 'a' + w % 26, 'a' + w / 26 % 26,
                         'a' + w / 676 % 26, 'a' + w % 7);
        cb_buf_text(&b, i % 9 == 8 ? ".\n\n" : ". ");
    }
    if (cb_haystack_make(b.s, b.n, &hay))
        abort();
    cb_buf_free(&b);
}

static struct gen gen_of(const int *length, int n_length, const int *depth, int n_depth, int items)
{
    return (struct gen){ .seed = 1,
                         .length = length,
                         .n_length = n_length,
                         .depth = depth,
                         .n_depth = n_depth,
                         .n_needle = 1,
                         .items = items,
                         .haystack = &hay,
                         .count = count };
}

static int tokens_of(const struct item *it)
{
    return count(NULL, it->context, strlen(it->context)) +
           count(NULL, it->question, strlen(it->question)) + it->max_new;
}

static void check_length(const struct item *it, double tolerance)
{
    const int n = tokens_of(it);
    ck_assert_msg(n <= it->length && n >= it->length * (1 - tolerance), "%s: %d tokens of %d",
                  it->id, n, it->length);
}

static void check_answers_inside(const struct item *it)
{
    for (int i = 0; i < it->n_answer; i++)
        ck_assert_msg(strstr(it->context, it->answer[i]) != NULL, "%s: %s", it->id, it->answer[i]);
}

START_TEST(needles_stand_at_their_depth)
{
    static const int length[] = { 1024, 8192 }, depth[] = { 0, 25, 50, 100 };
    const struct gen g = gen_of(length, 2, depth, 4, 2);
    struct item_list x = { 0 };

    ck_assert_ok(cb_gen_needle(&g, &x));
    ck_assert_int_eq(x.n, 16);
    for (int i = 0; i < x.n; i++) {
        const struct item *it = &x.at[i];
        const char *body = strstr(it->context, "\n\n") + 2;
        const char *at = strstr(body, "One of the special magic numbers for ");
        const double share =
            100.0 * count(NULL, body, (size_t)(at - body)) / count(NULL, body, strlen(body));
        check_length(it, 0.02);
        check_answers_inside(it);
        ck_assert_int_eq(it->n_answer, 1);
        ck_assert_msg(share >= it->depth - 4.5 && share <= it->depth + 0.5, "%s: at %.2f %%",
                      it->id, share);
        ck_assert_ptr_null(strstr(at + 9, "One of the special"));
        if (it->depth == 100) /* nothing follows */
            ck_assert_str_eq(strstr(at, it->answer[0]) + strlen(it->answer[0]), ".\n\n");
        ck_assert(at == body || it->depth == 100 || !strncmp(at - 2, ". ", 2));
    }
    cb_item_list_free(&x);
}
END_TEST

START_TEST(several_needles_are_spread)
{
    static const int length[] = { 2048 }, depth[] = { 20 };
    struct gen g = gen_of(length, 1, depth, 1, 1);
    struct item_list x = { 0 };
    const char *before;

    g.n_needle = 4;
    ck_assert_ok(cb_gen_needle(&g, &x));
    ck_assert_int_eq(x.at[0].n_answer, 4);
    ck_assert_str_eq(x.at[0].metric->name, "contains_all");
    before = x.at[0].context;
    for (int i = 0; i < 4; i++) {
        const char *at = strstr(x.at[0].context, x.at[0].answer[i]);
        ck_assert_ptr_nonnull(at);
        ck_assert(at > before + 500);
        before = at;
    }
    cb_item_list_free(&x);
    g.n_needle = 99;
    ck_assert_int_eq(cb_gen_needle(&g, &x), CB_EARG);
}
END_TEST

START_TEST(pass_keys_are_in_the_noise)
{
    static const int length[] = { 1000, 4000 };
    const struct gen g = gen_of(length, 2, NULL, 0, 3);
    struct item_list x = { 0 };

    ck_assert_ok(cb_gen_passkey(&g, &x));
    ck_assert_int_eq(x.n, 6);
    for (int i = 0; i < x.n; i++) {
        check_length(&x.at[i], 0.02);
        check_answers_inside(&x.at[i]);
    }
    ck_assert_str_ne(x.at[0].answer[0], x.at[1].answer[0]);
    cb_item_list_free(&x);
}
END_TEST

START_TEST(pass_keys_at_both_ends)
{
    static const int length[] = { 1000 }, depth[] = { 0, 100 };
    const struct gen g = gen_of(length, 1, depth, 2, 1);
    struct item_list x = { 0 };
    char end[32];

    ck_assert_ok(cb_gen_passkey(&g, &x));
    ck_assert_int_eq(x.n, 2);
    ck_assert_int_eq(strncmp(strstr(x.at[0].context, "\n\n") + 2, "The pass key is ", 16), 0);
    snprintf(end, sizeof end, "%s is the pass key. \n\n", x.at[1].answer[0]);
    ck_assert_str_eq(x.at[1].context + strlen(x.at[1].context) - strlen(end), end);
    cb_item_list_free(&x);
}
END_TEST

START_TEST(stages_two_has_its_sum_in_the_dictionary)
{
    static const int length[] = { 300, 739, 4096 };
    const struct gen g = gen_of(length, 3, NULL, 0, 8);

    for (int cot = 0; cot < 2; cot++) {
        struct item_list x = { 0 };
        ck_assert_ok(cb_gen_2stage(&g, cot, &x));
        ck_assert_int_eq(x.n, 24);
        for (int i = 0; i < x.n; i++) {
            int a, b;
            char entry[64];
            check_length(&x.at[i], 0.02);
            ck_assert_int_eq(sscanf(x.at[i].question, "The equation is %d + %d", &a, &b), 2);
            ck_assert(a > 0 && b > 0);
            snprintf(entry, sizeof entry, " %d: %s", a + b, x.at[i].answer[0]);
            ck_assert_msg(strstr(x.at[i].context, entry) != NULL, "%s", entry);
        }
        cb_item_list_free(&x);
    }
}
END_TEST

/* Sizes in turn, keys without gaps, all colours, sums of any size. */
START_TEST(stages_two_as_published)
{
    static const int size[] = { 40, 50, 60, 70, 80, 90, 100, 140, 180, 200 };
    const struct gen g = { .seed = 3, .items = 120 };
    struct item_list x = { 0 }, y = { 0 };
    int zero = 0;

    ck_assert_ok(cb_gen_2stage_published(&g, &x));
    ck_assert_ok(cb_gen_2stage_published(&g, &y));
    ck_assert_int_eq(x.n, 120);
    for (int i = 0; i < x.n; i++) {
        const int n = size[i % 10];
        const char *at = strchr(x.at[i].context, '{');
        int a, b;
        char entry[64];
        ck_assert_str_eq(x.at[i].context, y.at[i].context);
        for (int k = 0; k < n; k++) {
            snprintf(entry, sizeof entry, "%s%d: '", k ? ", " : "{", k);
            ck_assert_msg((at = strstr(at, entry)) != NULL, "item %d: no %s", i, entry);
        }
        snprintf(entry, sizeof entry, ", %d: '", n);
        ck_assert_ptr_null(strstr(x.at[i].context, entry));
        ck_assert_int_eq(sscanf(x.at[i].question, "The addition is %d + %d", &a, &b), 2);
        ck_assert(a >= 0 && b >= 0 && a + b < n);
        zero += a == 0 || b == 0;
        snprintf(entry, sizeof entry, "%d: '%s'", a + b, x.at[i].answer[0]);
        ck_assert_msg(strstr(x.at[i].context, entry) != NULL, "%s", entry);
        ck_assert_int_eq(x.at[i].length, 0);
        ck_assert_int_eq(x.at[i].chat, 1);
    }
    ck_assert_int_gt(zero, 0);
    ck_assert_ptr_nonnull(strstr(x.at[9].context, "'indigo'"));
    cb_item_list_free(&x);
    cb_item_list_free(&y);
}
END_TEST

/* Every entry is there, and so are three examples that are right and do not give the answer's sum.
 */
START_TEST(stages_two_with_examples)
{
    const struct gen g = { .seed = 3, .items = 60 };
    struct item_list x = { 0 };
    int largest = 0;

    ck_assert_ok(cb_gen_2stage_shown(&g, 12, 9, &x));
    ck_assert_int_eq(x.n, 60);
    for (int i = 0; i < x.n; i++) {
        const char *line = x.at[i].question;
        char text[64], c[16];
        int a, b, sum, again, asked;
        ck_assert_int_eq(sscanf(strrchr(line, '\n') + 1, "%d + %d =", &a, &b), 2);
        asked = a + b;
        largest = asked > largest ? asked : largest;
        ck_assert(a > 0 && b > 0 && asked <= 9);
        snprintf(text, sizeof text, "The colour of %d is %s.\n", asked, x.at[i].answer[0]);
        ck_assert_ptr_nonnull(strstr(x.at[i].context, text));
        for (int k = 0; k < 3; k++, line = strchr(line, '\n') + 1) {
            ck_assert_int_eq(sscanf(line, "%d + %d = %d, and the colour of %d is %15[a-z].", &a, &b,
                                    &sum, &again, c),
                             5);
            ck_assert(a > 0 && b > 0 && a + b == sum && again == sum && sum != asked);
            snprintf(text, sizeof text, "The colour of %d is %s.\n", sum, c);
            ck_assert_ptr_nonnull(strstr(x.at[i].context, text));
        }
        ck_assert_ptr_nonnull(strstr(x.at[i].context, "The colour of 11 is "));
        ck_assert_ptr_null(strstr(x.at[i].context, "The colour of 12 is "));
        ck_assert_int_eq(x.at[i].length, 12);
    }
    ck_assert_int_eq(largest, 9);
    cb_item_list_free(&x);
    ck_assert_int_eq(cb_gen_2stage_shown(&g, 5, 0, &x), CB_EARG);
    ck_assert_int_eq(cb_gen_2stage_shown(&g, 6, 0, &x), CB_OK);
    cb_item_list_free(&x);
}
END_TEST

static void check_ruler(const char *task, const struct item_list *x)
{
    const int n_answer = !strcmp(task, "niah_multivalue") || !strcmp(task, "niah_multiquery") ? 4
                         : !strcmp(task, "vt")                                                ? 5
                         : !strcmp(task, "cwe")                                               ? 10
                         : !strcmp(task, "fwe")                                               ? 3
                                                                                              : 1;
    for (int i = 0; i < x->n; i++) {
        ck_assert_str_eq(x->at[i].task, task);
        ck_assert_int_eq(x->at[i].n_answer, n_answer);
        check_length(&x->at[i], 0.02);
        check_answers_inside(&x->at[i]);
    }
}

START_TEST(ruler_has_thirteen_tasks)
{
    static const int length[] = { 4096, 8192 };
    const struct gen g = gen_of(length, 2, NULL, 0, 2);
    int n = 0, run = 0;

    for (const struct ruler_task *t; (t = cb_ruler_at(n)); n++) {
        struct item_list x = { 0 };
        if (cb_ruler_needs(t, &g)) {
            ck_assert_int_eq(strncmp(cb_ruler_name(t), "qa_", 3), 0);
            continue;
        }
        ck_assert_msg(!cb_gen_ruler(&g, t, &x), "%s: %s", cb_ruler_name(t), cb_error());
        ck_assert_int_eq(x.n, 4);
        check_ruler(cb_ruler_name(t), &x);
        cb_item_list_free(&x);
        run++;
    }
    ck_assert_int_eq(n, 13);
    ck_assert_int_eq(run, 11);
}
END_TEST

static const struct ruler_task *ruler(const char *name)
{
    for (int i = 0; cb_ruler_at(i); i++)
        if (!strcmp(cb_ruler_name(cb_ruler_at(i)), name))
            return cb_ruler_at(i);
    ck_abort_msg("%s", name);
    return NULL;
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* how often a word stands alone between blanks */
static int alone(const char *text, const char *word)
{
    const size_t n = strlen(word);
    int times = 0;
    for (const char *at = text; (at = strstr(at, word)); at += n)
        times += (at == text || isspace((unsigned char)at[-1])) &&
                 (isspace((unsigned char)at[n]) || !at[n]);
    return times;
}

START_TEST(ruler_counts_are_the_papers)
{
    static const int length[] = { 8192 };
    const struct gen g = gen_of(length, 1, NULL, 0, 1);
    struct item_list x = { 0 };
    const char *list;

    ck_assert(!cb_gen_ruler(&g, ruler("cwe"), &x));
    list = strstr(strstr(x.at[0].context, "\n\n"), "1. ");
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(alone(list, x.at[0].answer[i]), 30);
    cb_item_list_free(&x);

    ck_assert(!cb_gen_ruler(&g, ruler("fwe"), &x));
    ck_assert_int_gt(alone(x.at[0].context, "...."), alone(x.at[0].context, x.at[0].answer[0]));
    for (int i = 0; i < 2; i++)
        ck_assert_int_gt(alone(x.at[0].context, x.at[0].answer[i]),
                         alone(x.at[0].context, x.at[0].answer[i + 1]));
    cb_item_list_free(&x);

    ck_assert(!cb_gen_ruler(&g, ruler("niah_multikey_1"), &x));
    ck_assert_int_eq(occurrences(x.at[0].context, "One of the special magic"), 4);
    cb_item_list_free(&x);
    ck_assert(!cb_gen_ruler(&g, ruler("niah_multikey_3"), &x));
    ck_assert_int_gt(occurrences(x.at[0].context, "One of the special magic"), 100);
    ck_assert_int_eq(occurrences(x.at[0].context, x.at[0].answer[0]), 1);
    cb_item_list_free(&x);
}
END_TEST

/* The rank of the needle with the answer among all needles of a context */
static int rank_of(const struct item *it, const char *what)
{
    const char *own = strstr(it->context, it->answer[0]);
    int n = -1;

    for (const char *at = it->context; (at = strstr(at, what)) && at < own; at++)
        n++;
    return n;
}

/* The needle that is asked for is any of the four, and so is the document of a question. */
START_TEST(ruler_shuffles)
{
    static const int length[] = { 512 };
    const struct gen g = gen_of(length, 1, NULL, 0, 40);
    struct item_list x = { 0 };
    int seen[4] = { 0 };

    ck_assert(!cb_gen_ruler(&g, ruler("niah_multikey_1"), &x));
    for (int i = 0; i < x.n; i++)
        seen[rank_of(&x.at[i], "One of the special magic")]++;
    for (int i = 0; i < 4; i++)
        ck_assert_int_gt(seen[i], 2);
    cb_item_list_free(&x);
}
END_TEST

/* The share of a text's words, but for numbers, that equal the word before */
static double repeats(const char *text)
{
    const char *last = "";
    size_t n_last = 0;
    int n = 0, same = 0;

    for (const char *at = text; *(at += strspn(at, " \n"));) {
        const size_t len = strcspn(at, " \n");
        if (strspn(at, "0123456789") + 1 < len) { /* not "12." */
            same += len == n_last && !memcmp(at, last, len);
            n++;
            last = at;
            n_last = len;
        }
        at += len;
    }
    return (double)same / n;
}

/* Words that come often are spread over the text. In order, nearly all would follow their like. The
 * most frequent coded word is six of ten. */
START_TEST(ruler_spreads_words)
{
    static const int length[] = { 2048 };
    const struct gen g = gen_of(length, 1, NULL, 0, 3);
    static const char *const task[] = { "cwe", "fwe" };
    static const double most[] = { 0.1, 0.5 };
    struct item_list x = { 0 };

    ck_assert(!cb_gen_ruler(&g, ruler(task[_i]), &x));
    for (int i = 0; i < x.n; i++)
        ck_assert_double_lt(repeats(x.at[i].context), most[_i]);
    cb_item_list_free(&x);
}
END_TEST

/* The key that is asked for, the first after "for", has one needle: no other key and no distractor
 * is alike. */
static void check_one_needle(const struct item *it)
{
    const char *key = strstr(it->question, " for ") + 5, *at = it->context;
    const size_t n = strcspn(key, " ,?");
    int found = 0;

    while ((at = strstr(at, " for "))) {
        at += 5;
        found += !strncmp(at, key, n) && !strncmp(at + n, " is: ", 5);
    }
    ck_assert_msg(found == 1, "%s: %d needles for %.*s", it->id, found, (int)n, key);
}

START_TEST(ruler_keys_do_not_collide)
{
    static const int length[] = { 512, 4096 };
    struct gen g = gen_of(length + _i, 1, NULL, 0, _i ? 100 : 4000);
    struct item_list x = { 0 };

    ck_assert(!cb_gen_ruler(&g, ruler(_i ? "niah_multikey_2" : "niah_multikey_1"), &x));
    for (int i = 0; i < x.n; i++)
        check_one_needle(&x.at[i]);
    cb_item_list_free(&x);
}
END_TEST

START_TEST(ruler_questions_take_documents_of_others)
{
    static const int length[] = { 1024 };
    struct gen g = gen_of(length, 1, NULL, 0, 3);
    struct item_list x = { 0 };
    struct buf b = { 0 };

    for (int i = 0; i < 60; i++) {
        cb_buf_print(&b, "{\"question\":\"Where is %d?\",\"answers\":[\"place%d\"],\"documents\":[",
                     i, i);
        cb_buf_print(&b,
                     "\"Thing %d is at place%d and some more words stand here to fill the "
                     "document up.\"]}\n",
                     i, i);
    }
    write_file(b.s);
    cb_buf_free(&b);
    g.qa_file = path;
    ck_assert_ptr_null(cb_ruler_needs(ruler("qa_1"), &g));
    ck_assert_ok(cb_gen_ruler(&g, ruler("qa_1"), &x));
    ck_assert_int_eq(x.n, 3);
    for (int i = 0; i < 3; i++) {
        check_answers_inside(&x.at[i]);
        check_length(&x.at[i], 0.03);
        ck_assert_int_gt(rank_of(&x.at[i], "Document "), 0); /* chance: neither first nor last */
        ck_assert_int_lt(rank_of(&x.at[i], "Document "),
                         occurrences(x.at[i].context, "Document ") - 1);
    }
    cb_item_list_free(&x);
}
END_TEST

START_TEST(a_seed_makes_the_same_items)
{
    static const int length[] = { 1024 }, depth[] = { 50 };
    struct gen g = gen_of(length, 1, depth, 1, 2);
    struct item_list a = { 0 }, b = { 0 }, c = { 0 };

    ck_assert(!cb_gen_needle(&g, &a));
    ck_assert(!cb_gen_needle(&g, &b));
    g.seed = 2;
    ck_assert(!cb_gen_needle(&g, &c));
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(a.at[i].id, b.at[i].id);
        ck_assert_str_eq(a.at[i].context, b.at[i].context);
        ck_assert_str_ne(a.at[i].id, c.at[i].id);
        ck_assert_str_ne(a.at[i].answer[0], c.at[i].answer[0]);
    }
    ck_assert_str_ne(a.at[0].answer[0], a.at[1].answer[0]);
    cb_item_list_free(&a);
    cb_item_list_free(&b);
    cb_item_list_free(&c);
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    static const int length[] = { 40 }, depth[] = { 50 };
    const struct gen g = gen_of(length, 1, depth, 1, 1);
    struct item_list x = { 0 };

    ck_assert_int_eq(cb_gen_needle(&g, &x), CB_EARG);
    ck_assert_ptr_nonnull(strstr(cb_error(), "length 40"));
    cb_item_list_free(&x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("eval");
    TCase *files = tcase_create("items"), *made = tcase_create("generators");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, reads_the_three_forms);
    tcase_add_test(files, bad_lines_are_named_and_the_others_count);
    tcase_add_test(files, files_that_hold_nothing_are_refused);
    tcase_add_test(files, templates_are_those_published);
    tcase_add_test(files, a_missing_data_folder_is_named);
    make_hay();
    tcase_add_checked_fixture(made, setup, teardown);
    tcase_set_timeout(made, 60);
    tcase_add_test(made, needles_stand_at_their_depth);
    tcase_add_test(made, several_needles_are_spread);
    tcase_add_test(made, pass_keys_are_in_the_noise);
    tcase_add_test(made, pass_keys_at_both_ends);
    tcase_add_test(made, stages_two_has_its_sum_in_the_dictionary);
    tcase_add_test(made, stages_two_as_published);
    tcase_add_test(made, stages_two_with_examples);
    tcase_add_test(made, ruler_has_thirteen_tasks);
    tcase_add_test(made, ruler_counts_are_the_papers);
    tcase_add_test(made, ruler_shuffles);
    tcase_add_loop_test(made, ruler_spreads_words, 0, 2);
    tcase_add_loop_test(made, ruler_keys_do_not_collide, 0, 2);
    tcase_add_test(made, ruler_questions_take_documents_of_others);
    tcase_add_test(made, a_seed_makes_the_same_items);
    tcase_add_test(made, what_does_not_fit_is_refused);
    suite_add_tcase(s, files);
    suite_add_tcase(s, made);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    cb_haystack_free(&hay);
    return failed != 0;
}
