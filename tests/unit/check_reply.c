/* SPDX-License-Identifier: MIT */
/* check_reply.c - thoughts, texts and calls in what a model writes, however it is cut into pieces;
 * conversations that are remembered; stop texts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop_text.h"
#include "kit/suite.h"
#include "serve/reply.h"
#include "serve/token_history.h"

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

static void on_call(void *arg, const char *name)
{
    cb_buf_print(&((struct seen *)arg)->calls, "%s(", name);
}

static void on_args(void *arg, const char *s, size_t n)
{
    cb_buf_add(&((struct seen *)arg)->calls, s, n);
}

static void on_end(void *arg)
{
    cb_buf_text(&((struct seen *)arg)->calls, ")");
}

static const struct {
    const char *reply;
    int calls, begin;
    const char *text, *thought, *said; /* said: the calls */
} table[] = {
    { "Hello.", 0, 0, "Hello.", "", "" },
    { " Hello. ", 0, 0, " Hello. ", "", "" },
    { "", 1, REPLY_IN_THOUGHT, "", "", "" },
    { "<think>\nHm.\n</think>\n\nYes.", 0, 0, "Yes.", "\nHm.", "" },
    { "Hm.</think>\nYes.", 0, REPLY_IN_THOUGHT, "Yes.", "Hm.", "" },
    { "[THINK]Hm.[/THINK]Yes.", 0, 0, "Yes.", "Hm.", "" },
    { "<think>Hm. <thin", 0, 0, "", "Hm. <thin", "" },
    { "<thinker>", 0, 0, "<thinker>", "", "" },
    { "<think>no thought</think>", 0, REPLY_IN_TEXT, "<think>no thought</think>", "", "" },
#define TAG(x) "<tool_call>\n" x "\n</tool_call>"
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": 1}}"), 1, 0, "", "", "f({\"a\": 1})" },
    { TAG("{name: \"f\", arguments: {a: -.5, b: +5., c: -Infinity /* } */, // }\nd: NaN}}"), 1, 0,
      "", "", "f({\"a\": -0.5, \"b\": 5.0, \"c\": null , \n\"d\": null})" },
    { TAG("{\"name\": \"f\", \"a\": 1.50, \"of\": 2}"), 1, 0, "", "", "f({\"a\": 1.50})" },
    { "{\"tool_calls\": [{\"name\": \"f\", \"arguments\": [{\"a\": 1}]}]}", 1, 0, "", "",
      "f({\"a\": 1})" },
    { "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
      "string=\"true\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
      1, 0, "", "", "f({\"a\": \"1\"})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": 1}}"), 0, 0,
      TAG("{\"name\": \"f\", \"arguments\": {\"a\": 1}}"), "", "" },
    { "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
      "<tool_call>{\"name\":\"g\",\"arguments\":{\"b\":\"</x>\"}}</tool_call>",
      1, 0, "I look.", "", "f({})g({\"b\":\"</x>\"})" },
    { "<tool_call>{\"name\":\"f\",\"arguments\":{}}", 1, 0, "", "", "f({})" },
    { "<tool_call>no JSON</tool_call> more", 1, 0, "<tool_call>no JSON</tool_call> more", "", "" },
    { "<tool_call>f you</tool_call>", 1, 0, "<tool_call>f you</tool_call>", "", "" },
    { "a\n\n<tool_call>no", 1, 0, "a\n\n<tool_call>no", "", "" },
    { "<tool_call>{\"name\":\"f\",\"argum", 1, 0, "<tool_call>{\"name\":\"f\",\"argum", "", "" },
    { "<tool_call>{\"name\":\"f\", ", 1, 0, "<tool_call>{\"name\":\"f\", ", "", "" },
    { "{\"name\": \"f\",", 1, 0, "{\"name\": \"f\",", "", "" },
    { "{\"name\": \"f\", \"parameters\": {\"a\": [1, 2]}}", 1, 0, "", "", "f({\"a\": [1, 2]})" },
    { " [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]", 1, 0, "", "", "f({})g({})" },
    { "```json\n{\"name\": \"f\", \"arguments\": {}}\n```\n", 1, 0, "", "", "f({})" },
    { "```json\n{\"name\": \"f\"}\n``` and", 1, 0, "```json\n{\"name\": \"f\"}\n``` and", "", "" },
    { "```json\n{\"name\": \"f\"}\n```", 1, 0, "", "", "f({})" },
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
    { "x = [1, 2]\n{\"a\": 2}\nend", 1, 0, "x = [1, 2]\n{\"a\": 2}\nend", "", "" },
    /* arguments pass as they are written */
    { TAG("{\"name\": \"f\", \"arguments\": {\"b\": 1.0, \"a\":  12345678901234567890123, "
          "\"c\": \"\\u00e9\\/\", \"d\": 1e-7}}"),
      1, 0, "", "",
      "f({\"b\": 1.0, \"a\":  12345678901234567890123, \"c\": \"\\u00e9\\/\", \"d\": 1e-7})" },
    { TAG("{\"arguments\": {\"a\": 1.50}, \"name\": \"f\"}"), 1, 0, "", "", "f({\"a\": 1.50})" },
    { TAG("{\"id\": \"x\", \"name\": \"f\", \"arguments\": {\"a\": 1}, \"type\": \"function\"}"), 1,
      0, "", "", "f({\"a\": 1})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": \"x </tool_call> {\\\" y\"}}"), 1, 0, "", "",
      "f({\"a\": \"x </tool_call> {\\\" y\"})" },
    /* no arguments in any spelling */
    { TAG("{\"name\": \"f\", \"arguments\": null}"), 1, 0, "", "", "f({})" },
    { TAG("{\"name\": \"f\", \"arguments\": \"\"}"), 1, 0, "", "", "f({})" },
    { TAG("{\"name\": \"f\", \"arguments\": \"{}\"}"), 1, 0, "", "", "f({})" },
    { TAG("{\"name\": \"f\", \"arguments\": \"null\"}"), 1, 0, "", "", "f({})" },
    { TAG("{\"name\": \"f\", \"parameters\": []}"), 1, 0, "", "", "f({})" },
    { TAG("{\"name\": \"f\", \"arguments\": None}"), 1, 0, "", "", "f({})" },
    { TAG("{\"name\": \"f\"}"), 1, 0, "", "", "f({})" },
    { TAG("{\"arguments\": null, \"name\": \"f\"}"), 1, 0, "", "", "f({})" },
    { TAG("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1.0}\"}"), 1, 0, "", "",
      "f({\"a\": 1.0})" },
    { TAG("{\"name\": \"f\", \"arguments\": 3}"), 1, 0, TAG("{\"name\": \"f\", \"arguments\": 3}"),
      "", "" },
    /* mended */
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": 1}\n{\"name\": \"g\", \"arguments\": {}}"), 1,
      0, "", "", "f({\"a\": 1})g({})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\", \"arguments\": {}}"), 1,
      0, "", "", "f({\"a\": 1})g({})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}"), 1, 0, "", "",
      "f({\"a\": 1})g({})" },
    { TAG("[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}]"), 1, 0, "", "",
      "f({\"a\": 1})g({})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": 2}"), 1, 0, "", "",
      "f({\"a\": [1, {\"b\": 2}\n]})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": 1}}}"), 1, 0, "", "", "f({\"a\": 1})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": \"1\n\t2\"}}"), 1, 0, "", "",
      "f({\"a\": \"1\\n\\t2\"})" },
    { TAG("{'name': 'f', 'arguments': {'a': True, 'b': None, 'c': 'say \"x\"', 'd': 'it\\'s',}}"),
      1, 0, "", "", "f({\"a\": true, \"b\": null, \"c\": \"say \\\"x\\\"\", \"d\": \"it's\"})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"re\": \"\\d+\\.\", \"p\": \"C:\\up\"}}"), 1, 0, "",
      "", "f({\"re\": \"\\\\d+\\\\.\", \"p\": \"C:\\\\up\"})" },
    { TAG("{\"name\": \"f\", \"arguments\": {\"a\": oops}}"), 1, 0, "", "",
      "f({\"a\": oops}}\n)" }, /* the client's to judge, as other servers do */
    { "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 3}}}", 1, 0,
      "", "", "f({\"a\": 3})" },
    { TAG("{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 3}\"}, \"id\": \"1\"}"), 1,
      0, "", "", "f({\"a\": 3})" },
    { TAG("{\"function\": \"f\", \"parameters\": {\"a\": 3}}"), 1, 0, "", "", "f({\"a\": 3})" },
    /* the families' forms */
    { TAG("<function=f>\n<parameter=a>\n5\n</parameter>\n<parameter=s>\nx\n y \"z\"\n</parameter>"
          "\n</function>"),
      1, 0, "", "", "f({\"a\": 5, \"s\": \"x\\n y \\\"z\\\"\"})" },
    { TAG("<function=f>\n<parameter=s>\n5\n</parameter>\n</function>\n<function=g>\n</function>"),
      1, 0, "", "", "f({\"s\": \"5\"})g({})" },
    { "Now.\n<function=f>\n<parameter=s>\na </tool_call> b\n</parameter>\n</function>", 1, 0,
      "Now.", "", "f({\"s\": \"a </tool_call> b\"})" },
    { TAG("<function=f>\n<parameter=a>\ntrue\n<parameter=b>\n[1, 2]\n</function>"), 1, 0, "", "",
      "f({\"a\": \"true\", \"b\": [1, 2]})" },
    { "<function=f>{\"a\": 3}</function>", 1, 0, "", "", "f({\"a\": 3})" },
    { "<invoke name=\"f\"><parameter name=\"a\">3</parameter></invoke>", 1, 0, "", "",
      "f({\"a\": 3})" },
    { "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>3</arg_value>\n<arg_key>s</arg_key>\n"
      "<arg_value> 4\n</arg_value>\n</tool_call>",
      1, 0, "", "", "f({\"a\": 3, \"s\": \" 4\\n\"})" },
    { "<tool_call>f</tool_call>", 1, 0, "", "", "f({})" },
    { "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 3}}, {\"name\": \"g\", "
      "\"arguments\": {}}]",
      1, 0, "", "", "f({\"a\": 3})g({})" },
    { "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 3}, \"id\": \"abc\"}]</s>", 1, 0, "",
      "", "f({\"a\": 3})" },
    { "[TOOL_CALLS]f[ARGS]{\"a\": 3}[TOOL_CALLS]g[ARGS]{}", 1, 0, "", "", "f({\"a\": 3})g({})" },
    { "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"a\": 3}", 1, 0, "", "", "f({\"a\": 3})" },
    { "[TOOL_CALLS]f{\"a\": 3}", 1, 0, "", "", "f({\"a\": 3})" },
    { "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 3}}", 1, 0, "", "",
      "f({\"a\": 3})" },
    { "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
      1, 0, "", "", "f({})g({})" },
    { "<|python_tag|>f.call(a=3, s=\"x\")", 1, 0, "", "", "f({\"a\": 3, \"s\": \"x\"})" },
    { "[f(a=3, s='x', b=[True]), g()]", 1, 0, "", "",
      "f({\"a\": 3, \"s\": \"x\", \"b\": [true]})g({})" },
    { "```tool_code\nprint(f(a=3))\n```", 1, 0, "", "", "f({\"a\": 3})" },
    { "<start_function_call>call:f{a:3,s:<escape>x: {\"y\"}<escape>,b:{c:[1]}}"
      "<end_function_call>",
      1, 0, "", "", "f({\"a\": 3, \"s\": \"x: {\\\"y\\\"}\", \"b\": {\"c\": [1]}})" },
    { "<|tool_call>call:f{s:<|\"|>x<|\"|>}<tool_call|>", 1, 0, "", "", "f({\"s\": \"x\"})" },
    { "<|channel>thought\nHm.\n<channel|><|tool_call>call:f{a:3,b:{c:true,d:[1,<|\"|>y<|\"|>]}}"
      "<tool_call|><|tool_call>call:g{}<tool_call|>",
      1, 0, "", "Hm.", "f({\"a\": 3, \"b\": {\"c\": true, \"d\": [1, \"y\"]}})g({})" },
    { "<|channel>thought\n<channel|>Yes.", 0, 0, "Yes.", "", "" },
    { "<|inner_prefix|>Hm.<|inner_suffix|>I look.<|tools_prefix|>[{\"f\": {\"a\": 3}}, {\"g\": "
      "{}}]<|tools_suffix|>",
      1, 0, "I look.", "Hm.", "f({\"a\": 3})g({})" },
    { "<|tools_prefix|>[{\"name\": \"f\", \"arguments\": {\"a\": 3}}]", 1, 0, "", "",
      "f({\"a\": 3})" },
    { "<|channel>thought\nHm.<channel|>\nYes.", 1, 0, "Yes.", "Hm.", "" },
    { "<think>Hm.</think>\nI look.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
      "name=\"s\">x\n y</parameter>\n<parameter name=\"b\">{\"c\": 1}</parameter>\n</invoke>\n"
      "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
      1, 0, "I look.", "Hm.", "f({\"s\": \"x\\n y\", \"b\": {\"c\": 1}})g({})" },
    { "Hm.</think>I "
      "look.<tool_call>f<arg_key>a</arg_key><arg_value>3</arg_value><arg_key>s</arg_key>"
      "<arg_value>x\ny</arg_value></tool_call><tool_call>g</tool_call>",
      1, REPLY_IN_THOUGHT, "I look.", "Hm.", "f({\"a\": 3, \"s\": \"x\\ny\"})g({})" },
    { "I look.<|tool_call_start|>[f(a=3, s='x\n\"y\"', b={\"c\": [True]}), g()]<|tool_call_end|>",
      1, 0, "I look.", "", "f({\"a\": 3, \"s\": \"x\\n\\\"y\\\"\", \"b\": {\"c\": [true]}})g({})" },
    { "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 3}}, {\"name\": \"g\", \"arguments\": "
      "{}}]</TOOLCALL>",
      1, 0, "", "", "f({\"a\": 3})g({})" },
    { "<think>Hm.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
      "<|tool_call_argument_begin|>{\"a\": 3}<|tool_call_end|><|tool_call_begin|>functions.g:1"
      "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
      1, 0, "I look.", "Hm.", "f({\"a\": 3})g({})" },
    { "Hm.\n</think>\nI look.\n<tool_call>\n<function=f>\n<parameter=a>\n3\n</parameter>\n"
      "<parameter=b>\nTrue\n</parameter>\n</function>\n</tool_call>\n",
      1, REPLY_IN_THOUGHT, "I look.", "Hm.", "f({\"a\": 3, \"b\": true})" },
    { "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 3}\n```"
      "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>",
      1, 0, "", "", "f({\"a\": 3})g({})" },
    { "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
      "{\"a\": 3}<|tool_call_end|><|tool_calls_section_end|>",
      1, 0, "", "", "f({\"a\": 3})" },
    { "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{\"a\": 3}<|call|>",
      1, REPLY_IN_CHANNELS, "", "Hm.", "f({\"a\": 3})" },
    { "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
      0, REPLY_IN_CHANNELS, "Yes.", "Hm.", "" },
    { "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.f"
      "<|channel|>commentary json<|message|>{}",
      1, 0, "I look.", "", "f({})" },
    { "Hello, plain.", 0, REPLY_IN_CHANNELS, "Hello, plain.", "", "" },
    { "Sure:\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 3}}\n```\nDone.", 1, 0,
      "Sure:\nDone.", "", "f({\"a\": 3})" },
    { "Sure:\n```\n{\"name\": \"f\", \"arguments\": {\"a\": 3}}\n```", 1, 0, "Sure:", "",
      "f({\"a\": 3})" },
    { "See:\n```python\nprint(1)\n```\nand `f`.", 1, 0, "See:\n```python\nprint(1)\n```\nand `f`.",
      "", "" },
    { "Sure:\n{\"name\": \"f\", \"arguments\": {\"a\": 3}}", 1, 0, "Sure:", "", "f({\"a\": 3})" },
};

static json_t *tools(void)
{
    return json_pack("[{s:{s:s}}, {s:{s:s, s:{s:{s:{s:s}, s:{s:s}, s:{s:s}}}}}]", "function",
                     "name", "g", "function", "name", "f", "parameters", "properties", "a", "type",
                     "integer", "s", "type", "string", "b", "description", "any");
}

START_TEST(any_pieces)
{
    for (size_t size = 1; size <= strlen(table[_i].reply) + 1; size++) {
        struct seen seen = { { 0 }, { 0 }, { 0 } };
        const struct reply_sink sink = { on_text, on_thought, on_call, on_args, on_end, &seen };
        const size_t n = strlen(table[_i].reply);
        json_t *list = tools();
        struct reply r;

        cb_reply_open(&r, &sink, table[_i].calls ? list : NULL, (enum reply_begin)table[_i].begin);
        for (size_t at = 0; at < n; at += size)
            cb_reply_push(&r, table[_i].reply + at, n - at < size ? n - at : size);
        cb_reply_end(&r, 0);
        cb_reply_close(&r);
        json_decref(list);
        ck_assert_str_eq(seen.text.s ? seen.text.s : "", table[_i].text);
        ck_assert_str_eq(seen.thought.s ? seen.thought.s : "", table[_i].thought);
        ck_assert_str_eq(seen.calls.s ? seen.calls.s : "", table[_i].said);
        cb_buf_free(&seen.text);
        cb_buf_free(&seen.thought);
        cb_buf_free(&seen.calls);
    }
}
END_TEST

/* What the model ended may lack brackets; what was cut lacks its arguments. */
START_TEST(cut_before_arguments)
{
    static const char *const reply[] = {
        "<tool_call>{\"name\": \"f\"",
        "{\"name\": \"f\"",
        "<tool_call>\n<function=f>",
        "<tool_call>\n<function=f>\n",
        "[TOOL_CALLS]f",
    };
    const int n = sizeof reply / sizeof *reply;

    for (int i = 0; i < 2 * n; i++) {
        const int cut = i >= n;
        struct seen seen = { { 0 }, { 0 }, { 0 } };
        const struct reply_sink sink = { on_text, on_thought, on_call, on_args, on_end, &seen };
        json_t *list = tools();
        struct reply r;

        cb_reply_open(&r, &sink, list, REPLY_BEGINS);
        cb_reply_push(&r, reply[i % n], strlen(reply[i % n]));
        cb_reply_end(&r, cut);
        cb_reply_close(&r);
        json_decref(list);
        ck_assert_str_eq(seen.calls.s ? seen.calls.s : "", cut ? "" : "f({})");
        ck_assert_str_eq(seen.text.s ? seen.text.s : "", cut ? reply[i % n] : "");
        cb_buf_free(&seen.text);
        cb_buf_free(&seen.thought);
        cb_buf_free(&seen.calls);
    }
}
END_TEST

START_TEST(remembered)
{
    struct token_history *t;
    const int32_t ids[] = { 1, 2, 3, 4, 5 };
    int32_t *found;
    char *text;
    int n;

    ck_assert_int_eq(cb_token_history_new(2, 1 << 20, &t), 0);
    ck_assert_uint_eq(cb_token_history_find(t, "abc", 3, &found, &n), 0);
    cb_token_history_note(t, "abc", 3, ids, 3);
    ck_assert_uint_eq(cb_token_history_find(t, "abcdef", 6, &found, &n), 3);
    ck_assert_int_eq(n, 3);
    ck_assert(!memcmp(found, ids, 3 * sizeof *ids));
    free(found);
    ck_assert_uint_eq(cb_token_history_find(t, "ab", 2, &found, &n), 0);
    cb_token_history_note(t, "abcd", 4, ids, 4); /* the same conversation, later */
    cb_token_history_note(t, "xyz", 3, ids, 2);
    ck_assert_uint_eq(cb_token_history_find(t, "abcdef", 6, &found, &n), 4);
    free(found);
    cb_token_history_note(t, "uvw", 3, ids, 1); /* more than two: the oldest goes */
    cb_token_history_note(t, "rst", 3, ids, 1);
    ck_assert_uint_eq(cb_token_history_find(t, "abcdef", 6, &found, &n), 0);
    cb_token_history_note_call(t, "id1", "first");
    cb_token_history_note_call(t, "id2", "second");
    cb_token_history_note_call(t, "id3", "third");
    ck_assert_int_eq(cb_token_history_call(t, "id1", &text), 0);
    ck_assert_ptr_eq(text, NULL);
    ck_assert_int_eq(cb_token_history_call(t, "id2", &text), 0);
    ck_assert_str_eq(text, "second");
    free(text);
    cb_token_history_free(t);
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
    tcase_add_test(t, cut_before_arguments);
    tcase_add_test(t, remembered);
    tcase_add_test(t, stop_texts);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
