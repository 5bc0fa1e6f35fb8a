/* SPDX-License-Identifier: MIT */
/* check_leval.c - L-Eval's files: documents with several questions, each with its task's metric or
 * its own. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "eval/item.h"
#include "eval/metric.h"
#include "kit/item_warnings.h"
#include "kit/suite.h"

/* Reads text as the file of a task -> status */
static int read_as(const char *task, const char *text, struct item_list *x)
{
    char path[128];
    FILE *f;
    int err;

    *x = (struct item_list){ 0 };
    snprintf(path, sizeof path, "%s.%d.jsonl", task, (int)getpid());
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
    err = cb_item_read(path, cb_item_warn, NULL, x);
    unlink(path);
    return err;
}

START_TEST(a_document_with_several_questions)
{
    struct item_list x;

    ck_assert_ok(read_as("quality",
                         "{\"instructions\":[\"Who?\\n (A) I\\n (B) you\",\"Why?\"],"
                         "\"outputs\":[\"(B) you\",\"(A) so\"],\"input\":\"A tale.\","
                         "\"source\":\"s\",\"evaluation\":\"exam\"}\n"
                         "{\"instructions\":[\"When?\"],\"outputs\":[\"(D) now\"],"
                         "\"input\":\"Another.\",\"evaluation\":\"exam\"}\n",
                         &x));
    ck_assert_int_eq(x.n, 3);
    ck_assert_str_eq(cb_item_warned, "");
    ck_assert_str_eq(x.at[0].task, "quality");
    ck_assert_str_eq(x.at[0].id, "quality-1-1");
    ck_assert_str_eq(x.at[1].id, "quality-1-2");
    ck_assert_str_eq(x.at[2].id, "quality-2-1");
    ck_assert_str_eq(x.at[0].context, x.at[1].context);
    ck_assert_ptr_nonnull(strstr(x.at[1].context, "A tale."));
    ck_assert_ptr_null(strstr(x.at[1].context, "Why?"));
    ck_assert_ptr_nonnull(strstr(x.at[0].question, "Question: Who?\n (A) I\n (B) you\n"));
    ck_assert_ptr_nonnull(strstr(x.at[2].context, "Another."));
    ck_assert_str_eq(x.at[1].answer[0], "(A) so");
    for (int i = 0; i < x.n; i++) {
        ck_assert_str_eq(x.at[i].metric->name, "exam_option");
        ck_assert_int_eq(x.at[i].max_new, 512);
        ck_assert_int_eq(x.at[i].chat, 1);
        ck_assert_int_eq(x.at[i].n_answer, 1);
    }
    cb_item_list_free(&x);
}
END_TEST

static const struct {
    const char *task, *metric;
    int chat;
} exams[] = { { "coursera", "exam_options", 1 },
              { "tpo", "exam_option", 1 },
              { "gsm100", "exam_number", 0 },
              { "topic_retrieval_longchat", "exam_text", 1 } };

START_TEST(exams_have_their_metrics)
{
    struct item_list x;

    ck_assert_ok(read_as(exams[_i].task,
                         "{\"instructions\":[\"Q\"],\"outputs\":[\"A\"],\"input\":\"D\","
                         "\"evaluation\":\"exam\"}",
                         &x));
    ck_assert_str_eq(x.at[0].metric->name, exams[_i].metric);
    ck_assert_int_eq(x.at[0].chat, exams[_i].chat);
    cb_item_list_free(&x);
}
END_TEST

static const char *const open_ended[] = {
    "financial_qa", "gov_report_summ",  "legal_contract_qa", "meeting_summ",    "multidoc_qa",
    "narrative_qa", "natural_question", "news_summ",         "paper_assistant", "patent_summ",
    "review_summ",  "scientific_qa",    "tv_show_summ",
};

/* The document says how; the prompt has the number of words of the reference. */
START_TEST(open_questions_name_their_metric)
{
    struct item_list x;

    ck_assert_ok(read_as(open_ended[_i],
                         "{\"instructions\":[\"Sum up.\"],\"outputs\":[\"It  is\\nall over.\"],"
                         "\"input\":\"D\",\"evaluation\":\"rouge\"}\n"
                         "{\"instructions\":[\"Q\"],\"outputs\":[\"yes\"],\"input\":\"D\","
                         "\"evaluation\":\"f1\"}\n"
                         "{\"instructions\":[\"Q\"],\"outputs\":[\"yes\"],\"input\":\"D\","
                         "\"evaluation\":\"human\"}\n"
                         "{\"instructions\":[\"Q\"],\"outputs\":[\"yes\"],\"input\":\"D\","
                         "\"evaluation\":\"LLM\"}\n"
                         "{\"instructions\":[\"Q\"],\"outputs\":[\"yes\"],\"input\":\"D\","
                         "\"evaluation\":\"bleu\"}\n",
                         &x));
    ck_assert_int_eq(x.n, 2);
    ck_assert_int_eq(x.n_bad, 1);
    ck_assert_str_eq(x.at[0].metric->name, "rouge_words");
    ck_assert_str_eq(x.at[1].metric->name, "qa_f1");
    ck_assert_ptr_nonnull(strstr(x.at[0].question, "Instruction: Sum up.\nAnswer in 4 words.\n"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "line 3: left out, its answers need a judge"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "line 4: left out"));
    ck_assert_ptr_nonnull(
        strstr(cb_item_warned, "line 5: evaluation bleu: unknown; there are f1, rouge"));
    cb_item_list_free(&x);
}
END_TEST

START_TEST(bad_documents_are_named)
{
    struct item_list x;

    ck_assert_int_eq(
        read_as("tpo",
                "{\"instructions\":[\"Q\",\"R\"],\"outputs\":[\"A\"],\"input\":\"D\"}\n"
                "{\"instructions\":[],\"outputs\":[],\"input\":\"D\"}\n"
                "{\"instructions\":\"Q\",\"outputs\":\"A\",\"input\":\"D\"}\n"
                "{\"instructions\":[\"Q\",\"R\"],\"outputs\":[null,\"B\"],\"input\":\"D\"}\n"
                "{\"instructions\":[\"Q\",7],\"outputs\":[\"A\",\"B\"]}\n",
                &x),
        CB_OK);
    ck_assert_int_eq(x.n, 1);
    ck_assert_str_eq(x.at[0].id, "tpo-4-2");
    ck_assert_int_eq(x.n_bad, 6);
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "line 1: instructions, outputs: 2 and 1"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "line 2: instructions, outputs: 0 and 0"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "line 3: instructions, outputs: 0 and 0"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "line 4: answers: none"));
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "line 5: context: none"));
    cb_item_list_free(&x);
    ck_assert_int_eq(
        read_as("tpoo", "{\"instructions\":[\"Q\"],\"outputs\":[\"A\"],\"input\":\"D\"}\n", &x),
        CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_item_warned, "task tpoo: no template; did you mean tpo?"));
    cb_item_list_free(&x);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("leval");
    TCase *t = tcase_create("files");

    suite_add_tcase(suite, t);
    tcase_add_checked_fixture(t, cb_item_begin, NULL);
    tcase_add_test(t, a_document_with_several_questions);
    tcase_add_loop_test(t, exams_have_their_metrics, 0, sizeof exams / sizeof *exams);
    tcase_add_loop_test(t, open_questions_name_their_metric, 0,
                        sizeof open_ended / sizeof *open_ended);
    tcase_add_test(t, bad_documents_are_named);
    return cb_suite_run(suite);
}
