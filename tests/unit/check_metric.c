/* SPDX-License-Identifier: MIT */
/* check_metric.c - each metric on answers whose scores follow from its definition by hand. */
#include <check.h>
#include <stdlib.h>

#include "eval/metric.h"
#include "kit/suite.h"

static double score(const char *metric, const char *pred, const char *gold)
{
    const struct golds g = { &gold, 1, NULL, 0 };
    const struct metric *m = cb_metric_find(metric);
    ck_assert_ptr_nonnull(m);
    return m->score(pred, &g);
}

static const struct {
    const char *metric, *pred, *gold;
    double want;
} rows[] = {
    { "qa_f1", "The Free Guy!", "free guy", 1 },
    { "qa_f1", "It is Free Guy.", "Free Guy", 2.0 * 2 / (4 + 2) },
    { "qa_f1", "an apple", "the apple", 1 },
    { "em", "An apple a day", "apple day", 1 },
    { "qa_f1", "go go go", "go go stop", 2.0 * 2 / 6 },
    { "qa_f1", "", "x", 0 },
    { "qa_f1", "nothing", "x y", 0 },
    /* 北京 in common, of 3 characters each; marks of both scripts and blanks count nothing */
    { "f1_chars", "在 北京。", "北京市", 2.0 * 2 / (3 + 3) },
    { "f1_chars", "“他，北京！”", "北 京", 2.0 * 2 / (3 + 2) },
    { "f1_chars", "GPT-4", "gpt4", 1 },
    { "f1_chars", "。！", "北京", 0 },
    { "f1_chars",
      "\xff"
      "北",
      "北", 1 },
    { "rouge_chars", "我在北京住", "我住在北京", 2.0 * 4 / 10 },
    { "rouge_chars", "京北", "北京", 2.0 * 1 / 4 },
    { "contains", "register is 2416.", "2416", 1 },
    { "contains", "ABC", "b", 1 },
    { "contains", "2415", "2416", 0 },
    { "contains_norm", "It was \"the psychology, of creativity\".", "The psychology of creativity",
      1 },
    { "contains_norm", "psychology", "The psychology of creativity", 0 },
    { "em", "The Cat.", "cat", 1 },
    { "em", "The cats", "cat", 0 },
    { "choice", "Answer: B, not A", "B", 1 },
    { "choice", "DAB C", "C", 1 },
    { "choice", "none", "A", 0 },
    { "choice", "The answer is D.", "D", 1 },
    { "choice", "E, so A", "A", 1 },
    { "choice", "A", "D", 0 },
    { "last_number", "12 then 34.", "34", 1 },
    { "last_number", "34 then 12", "34", 0 },
    { "last_number", "no", "34", 0 },
    { "code_sim", "```python\n# comment\nabcd\nrest", "abed", 2.0 * 3 / 8 },
    { "code_sim", "x // y\n", "x", 0 },
    { "rouge_l", "a b c d", "a x c d", 2.0 * 3 / 8 },
    { "numbers", "It is 3, or 4, or 3", "Paragraph 3", 2.0 / 3 },
    { "numbers", "thirteen", "13", 0 },
    { "rouge_words", "The CAT, sat; on-mats", "the cat sat on a mat", 2.0 * 4 / (5 + 6) },
    { "rouge_words", "caf\xc3\xa9 noir", "caf noir", 1 },
    { "rouge_words", "", "x", 0 },
    { "rouge_words", "...", "...", 0 },
    { "exam_option", "B", "(B) you and I", 1 },
    { "exam_option", "it is C. Not B", "C", 1 },
    { "exam_option", "Because", "(B) x", 1 },   /* the letter may begin a word */
    { "exam_option", "none of these", "A", 1 }, /* as guessed */
    { "exam_option", "none of these", "(B) x", 0 },
    { "exam_option", "", "A", 0 },
    { "exam_option", "AB", "A", 0 },
    { "exam_options", "ACB", "ABC", 1 },
    { "exam_options", "AC", "ABC", 0.25 },
    { "exam_options", "AD", "ABC", 0 },
    { "exam_options", "B", "BD", 0.25 },
    { "exam_options", "(B) and (D), not A", "BD", 1 }, /* nothing follows the A */
    { "exam_options", "B. this D) that", "BD", 1 },
    { "exam_options", "B. Question: is it A. or D.", "B", 1 },
    { "exam_options", "all of them", "A", 1 },
    { "exam_options", "", "A", 0 },
    { "exam_number", "So 3 + 4 is 7. The answer is 7.\n\nQuestion: The answer is 9", "7", 1 },
    { "exam_number", "It takes $1,200 or so\n\nand 7", "1200", 1 },
    { "exam_number", "The answer is 18.5", "18", 1 },
    { "exam_number", "The answer is 18\n20", "18", 1 },
    { "exam_number", "The answer is 018", "18", 1 },
    { "exam_number", "12 eggs, then none", "12", 1 },
    { "exam_number", "none", "12", 0 },
    { "exam_number", "The answer is ", "3", 0 },
    { "exam_text", "\nA\n the benefits of  Volunteering.\nmore", "The benefits of volunteering",
      1 },
    { "exam_text", "first line\nThe benefits", "The benefits", 0 },
    { "exam_text", "x", "X", 1 },
    { "exam_text", "", "x", 0 },
};

START_TEST(a_row)
{
    ck_assert_double_eq_tol(score(rows[_i].metric, rows[_i].pred, rows[_i].gold), rows[_i].want,
                            1e-12);
}
END_TEST

START_TEST(the_best_reference_counts)
{
    const char *const gold[] = { "Paris", "City of Light" };
    const struct golds g = { gold, 2, NULL, 0 };
    ck_assert_double_eq(cb_metric_find("em")->score("city of light", &g), 1);
    /* but this one asks for all */
    ck_assert_double_eq(cb_metric_find("contains_all")->score("paris", &g), 0.5);
}
END_TEST

START_TEST(naming_every_class_is_no_answer)
{
    const char *const classes[] = { "Food", "Fast Food", "Sport", "City" }, *gold = "Fast Food";
    const struct golds g = { &gold, 1, classes, 4 };
    const struct metric *m = cb_metric_find("classification");

    ck_assert_double_eq(m->score("Fast Food", &g), 1); /* "Food" is part of the right name */
    ck_assert_double_eq(m->score("Fast Food or Sport", &g), 0.5);
    ck_assert_double_eq(m->score("Sport", &g), 0);
}
END_TEST

START_TEST(an_unknown_metric_is_not_found)
{
    ck_assert_ptr_null(cb_metric_find("bleu"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metric");
    TCase *t = tcase_create("scores");

    suite_add_tcase(suite, t);
    tcase_add_loop_test(t, a_row, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(t, the_best_reference_counts);
    tcase_add_test(t, naming_every_class_is_no_answer);
    tcase_add_test(t, an_unknown_metric_is_not_found);
    return cb_suite_run(suite);
}
