/* SPDX-License-Identifier: MIT */
/* check_reply.c - thoughts, texts and calls in what a model writes, however it is cut into pieces;
 * conversations that are remembered; stop texts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop_text.h"
#include "kit/suite.h"
#include "serve/reply.h"
#include "serve/transcripts.h"

struct seen {
    struct buf text, thought, calls;
};

static void on_text(void *arg, const char *s, size_t n)
{
    cb_buf_add(&((struct seen *)arg)->text, s, n);
}

static void on_thought(void *arg, const char *s, size_t n)
{
    cb_buf_add(&((struct seen *)arg)->thought, s, n);
}

static void on_call(void *arg, const char *name, const char *arguments)
{
    cb_buf_print(&((struct seen *)arg)->calls, "%s(%s)", name, arguments);
}

static const struct {
    const char *reply;
    int calls, in_thought;
    const char *text, *thought, *said; /* said: the calls */
} table[] = {
    { "Hello.", 0, 0, "Hello.", "", "" },
    { " Hello. ", 0, 0, " Hello. ", "", "" },
    { "", 1, 1, "", "", "" },
    { "<think>\nHm.\n</think>\n\nYes.", 0, 0, "Yes.", "\nHm.", "" },
    { "Hm.</think>\nYes.", 0, 1, "Yes.", "Hm.", "" },
    { "<think>Hm. <thin", 0, 0, "", "Hm. <thin", "" },
    { "<thinker>", 0, 0, "<thinker>", "", "" },
    { "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", 1, 0, "", "",
      "f({\"a\": 1})" },
    { "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", 0, 0,
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "", "" },
    { "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
      "<tool_call>{\"name\":\"g\",\"arguments\":{\"b\":\"</x>\"}}</tool_call>",
      1, 0, "I look.", "", "f({})g({\"b\": \"</x>\"})" },
    { "<tool_call>{\"name\":\"f\",\"arguments\":{}}", 1, 0, "", "", "f({})" },
    { "<tool_call>no JSON</tool_call> more", 1, 0, "<tool_call>no JSON</tool_call> more", "", "" },
    { "<tool_call>{\"name\":\"f\",\"argum", 1, 0, "<tool_call>{\"name\":\"f\",\"argum", "", "" },
    { "{\"name\": \"f\", \"parameters\": {\"a\": [1, 2]}}", 1, 0, "", "", "f({\"a\": [1, 2]})" },
    { " [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]", 1, 0, "", "", "f({})g({})" },
    { "```json\n{\"name\": \"f\", \"arguments\": {}}\n```\n", 1, 0, "", "", "f({})" },
    { "```json\n{\"name\": \"f\"}\n``` and", 1, 0, "```json\n{\"name\": \"f\"}\n``` and", "", "" },
    { "```jso", 1, 0, "```jso", "", "" },
    { "```js\n1", 1, 0, "```js\n1", "", "" },
    { "```json", 1, 0, "```json", "", "" },
    { "{\"name\": \"unknown\", \"arguments\": {}}", 1, 0,
      "{\"name\": \"unknown\", \"arguments\": {}}", "", "" },
    { "{\"name\": 3}", 1, 0, "{\"name\": 3}", "", "" },
    { "{\"a\": 1}", 1, 0, "{\"a\": 1}", "", "" },
    { "{\"name\": \"f\"} and text", 1, 0, "{\"name\": \"f\"} and text", "", "" },
    { "<think>x</think>{\"name\": \"f\", \"arguments\": {}}", 1, 0, "", "x", "f({})" },
    { "a < b and <tool", 1, 0, "a < b and <tool", "", "" },
};

START_TEST(any_pieces)
{
    for (size_t size = 1; size <= strlen(table[_i].reply) + 1; size++) {
        struct seen seen = { { 0 }, { 0 }, { 0 } };
        const struct reply_sink sink = { on_text, on_thought, on_call, &seen };
        const size_t n = strlen(table[_i].reply);
        json_t *tools =
            json_pack("[{s:{s:s}},{s:{s:s}}]", "function", "name", "g", "function", "name", "f");
        struct reply r;

        cb_reply_open(&r, &sink, table[_i].calls ? tools : NULL, table[_i].in_thought);
        for (size_t at = 0; at < n; at += size)
            cb_reply_push(&r, table[_i].reply + at, n - at < size ? n - at : size);
        cb_reply_end(&r);
        cb_reply_close(&r);
        json_decref(tools);
        ck_assert_str_eq(seen.text.s ? seen.text.s : "", table[_i].text);
        ck_assert_str_eq(seen.thought.s ? seen.thought.s : "", table[_i].thought);
        ck_assert_str_eq(seen.calls.s ? seen.calls.s : "", table[_i].said);
        cb_buf_free(&seen.text);
        cb_buf_free(&seen.thought);
        cb_buf_free(&seen.calls);
    }
}
END_TEST

START_TEST(remembered)
{
    struct transcripts *t;
    const int32_t ids[] = { 1, 2, 3, 4, 5 };
    int32_t *found;
    char *text;
    int n;

    ck_assert_int_eq(cb_transcripts_new(2, &t), 0);
    ck_assert_uint_eq(cb_transcripts_find(t, "abc", 3, &found, &n), 0);
    cb_transcripts_note(t, "abc", 3, ids, 3);
    ck_assert_uint_eq(cb_transcripts_find(t, "abcdef", 6, &found, &n), 3);
    ck_assert_int_eq(n, 3);
    ck_assert(!memcmp(found, ids, 3 * sizeof *ids));
    free(found);
    ck_assert_uint_eq(cb_transcripts_find(t, "ab", 2, &found, &n), 0);
    cb_transcripts_note(t, "abcd", 4, ids, 4); /* the same conversation, later */
    cb_transcripts_note(t, "xyz", 3, ids, 2);
    ck_assert_uint_eq(cb_transcripts_find(t, "abcdef", 6, &found, &n), 4);
    free(found);
    cb_transcripts_note(t, "uvw", 3, ids, 1); /* more than two: the oldest goes */
    cb_transcripts_note(t, "rst", 3, ids, 1);
    ck_assert_uint_eq(cb_transcripts_find(t, "abcdef", 6, &found, &n), 0);
    cb_transcripts_note_call(t, "id1", "first");
    cb_transcripts_note_call(t, "id2", "second");
    cb_transcripts_note_call(t, "id3", "third");
    ck_assert_ptr_eq(cb_transcripts_call(t, "id1"), NULL);
    text = cb_transcripts_call(t, "id2");
    ck_assert_str_eq(text, "second");
    free(text);
    cb_transcripts_free(t);
}
END_TEST

START_TEST(stop_texts)
{
    const char *const stop[] = { "", "end", "nd of", "e" };
    int which;

    ck_assert_uint_eq(cb_stop_find("the end of", 10, stop, 3, &which), 4);
    ck_assert_int_eq(which, 1);
    ck_assert_uint_eq(cb_stop_find("the end of", 10, stop, 4, &which), 2);
    ck_assert_int_eq(which, 3);
    ck_assert_uint_eq(cb_stop_find("nothing", 7, stop, 3, &which), 7);
    ck_assert_int_eq(which, -1);
    ck_assert_uint_eq(cb_stop_safe("the en", 6, stop, 3), 4);
    ck_assert_uint_eq(cb_stop_safe("an", 2, stop, 3), 1);
    ck_assert_uint_eq(cb_stop_safe("a", 1, stop, 3), 1);
    ck_assert_uint_eq(cb_stop_safe("", 0, stop, 3), 0);
    ck_assert_uint_eq(cb_stop_safe("x nd o", 6, stop, 3), 2);
    ck_assert_uint_eq(cb_stop_safe("text", 4, NULL, 0), 4);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reply");
    TCase *t = tcase_create("parts");

    tcase_add_loop_test(t, any_pieces, 0, (int)(sizeof table / sizeof *table));
    tcase_add_test(t, remembered);
    tcase_add_test(t, stop_texts);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
