/* SPDX-License-Identifier: MIT */
/* check_conversation.c - conversations of each interface become the same tokens or an error,
 * whichever allocation fails while they are read; what templates have a place for; JSON as clients
 * write it. This program's calls of the allocation functions go through wrappers (-Wl,--wrap) that
 * refuse one of them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_lenient.h"
#include "kit/folder.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "serve/chat_prompt.h"
#include "serve/dialect_requests.h"
#include "serve/prefix_store.h"

/* ---- memory that runs out ---- */

static long left = -1; /* calls until one is refused; -1: none is */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

static int refuse(void)
{
    return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return refuse() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return refuse() ? NULL : __real_strndup(s, n);
}

/* ---- a server without a scheduler ---- */

static const char own_tools[] =
    "{% for t in tools or [] %}{{ t.function.name }} {{ t.function.parameters | tojson }}\n"
    "{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content }}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor "
    "%}<|im_start|>assistant\n";
static const char no_tools[] =
    "{% if messages[0].role == 'system' %}<s>{{ messages[0].content }}{% set ms = messages[1:] %}"
    "{% else %}{% set ms = messages %}{% endif %}{% for m in ms %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}<a>";
static const char built_in[] = "chatml";

static cb_model *model;

static void open_server(struct server *s, const char *form)
{
    *s = (struct server){ .m = { .model = model, .name = "tiny", .chat = { form, NULL } } };
    cb_model_get_info(model, &s->info);
    ck_assert_int_eq(cb_token_history_new(4, 1 << 20, &s->transcripts), 0);
    ck_assert_int_eq(cb_prefix_store_new(1 << 20, &s->documents), 0);
    ck_assert_int_eq(cb_template_fit(model, &s->m.chat, &s->fit), 0);
    cb_token_history_note_call(s->transcripts, "call_kept", "<tool_call>as it was</tool_call>");
}

static void close_server(struct server *s)
{
    cb_token_history_free(s->transcripts);
    cb_prefix_store_free(s->documents);
}

/* ---- conversations ---- */

static const char chat[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be short.\"},"
    "{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
    "\"text\":\"b "
    "\\ud83d\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Where?\"},"
    "{\"type\":\"image_url\",\"image_url\":{}}]},"
    "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"Hm.\",\"tool_calls\":[{"
    "\"id\":"
    "\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 123456789012345678901}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"name\":\"f\",\"content\":\"there\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call_kept\",\"function\":"
    "{\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"here\"},"
    "{\"role\":\"user\",\"content\":\"So?\"},{\"role\":\"user\",\"content\":\"Well?\"},"
    "{\"role\":\"assistant\",\"content\":\"It is\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"x\":{\"type\":\"number\"}}}}},{\"type\":\"web_search\"}],"
    "\"tool_choice\":\"auto\",\"chat_template_kwargs\":{\"k\":1}}";
static const char messages[] =
    "{\"system\":[{\"type\":\"text\",\"text\":\"Be short.\"}],\"messages\":[{\"role\":\"user\","
    "\"content\":[{\"type\":\"text\",\"text\":\"Where?\"},{\"type\":\"document\",\"source\":{"
    "\"type\":"
    "\"text\",\"data\":\"A "
    "document.\"}}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
    "\"thinking\":\"Hm.\"},{\"type\":\"text\",\"text\":\"I look.\"},{\"type\":\"tool_use\",\"id\":"
    "\"t1\",\"name\":\"f\",\"input\":{\"x\":1}}]},{\"role\":\"user\",\"content\":[{\"type\":"
    "\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{\"type\":\"text\",\"text\":\"there\"},"
    "{\"type\":\"image\",\"source\":{}}]},{\"type\":\"text\",\"text\":\"So?\"}]}],\"tools\":[{"
    "\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}},{\"type\":"
    "\"bash_20250124\",\"name\":\"bash\"}],\"tool_choice\":{\"type\":\"any\","
    "\"disable_parallel_tool_use\":true}}";
static const char responses[] =
    "{\"instructions\":\"Be short.\",\"input\":[{\"role\":\"developer\",\"content\":[{\"type\":"
    "\"input_text\",\"text\":\"p\"}]},{\"role\":\"user\",\"content\":\"Where?\"},{\"type\":"
    "\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"Hm.\"}]},{\"type\":"
    "\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
    "\"function_call_output\",\"call_id\":\"c1\",\"output\":\"there\"},{\"type\":\"web_search_"
    "call\"},"
    "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"p\",\"input\":\"x\"},{\"type\":"
    "\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":\"ok\"}],\"tools\":[{\"type\":"
    "\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"}},{\"type\":\"web_search\"}],"
    "\"reasoning\":{\"effort\":\"low\"}}";

static int to_chat(const json_t *request, json_t **ignored, json_t **out)
{
    (void)ignored;
    *out = json_incref((json_t *)(uintptr_t)request);
    return CB_OK;
}

static const struct {
    const char *body;
    int (*convert)(const json_t *request, json_t **ignored, json_t **chat);
} interfaces[] = { { chat, to_chat },
                   { messages, cb_messages_to_chat },
                   { responses, cb_responses_to_chat } };

/* The conversation's prompt, as a request is read; negative: failed */
static int read_one(const struct server *s, int which, json_t **ignored, struct chat_prompt *p)
{
    json_error_t why;
    json_t *request;
    json_t *out = NULL;
    int rc;

    cb_json_forget();
    request = cb_json_read(interfaces[which].body, strlen(interfaces[which].body), &why);
    rc = request ? interfaces[which].convert(request, ignored, &out) : CB_ENOMEM;

    *p = (struct chat_prompt){ 0 };
    if (!rc)
        rc = cb_chat_prompt(s, out, p);
    json_decref(out);
    json_decref(request);
    return rc;
}

static void same(const struct chat_prompt *a, const struct chat_prompt *b, long n)
{
    ck_assert_msg(a->n == b->n && !memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids),
                  "allocation %ld: %d tokens instead of %d: %s", n, b->n, a->n, b->text);
    ck_assert_str_eq(a->text, b->text);
    ck_assert_int_eq(a->begin, b->begin);
    ck_assert_int_eq(a->one_call, b->one_call);
    ck_assert_msg(json_equal(a->tools, b->tools), "allocation %ld: other tools", n);
    ck_assert_msg(a->choice == b->choice || json_equal(a->choice, b->choice),
                  "allocation %ld: another choice", n);
    ck_assert_msg(a->ignored == b->ignored || json_equal(a->ignored, b->ignored),
                  "allocation %ld: other notes", n);
}

START_TEST(each_allocation)
{
    const char *const forms[] = { own_tools, no_tools, built_in };
    const int which = _i % 3;
    json_t *notes = NULL, *ignored;
    struct chat_prompt want, p;
    long n = 0, failed = 0;
    struct server s;
    int rc, refused;

    open_server(&s, forms[_i / 3]);
    /* a built-in form has no variables */
    ck_assert_int_eq(read_one(&s, which, &notes, &want), which || _i < 6 ? 0 : CB_EUNSUPPORTED);
    do {
        ignored = NULL;
        left = n;
        rc = read_one(&s, which, &ignored, &p);
        refused = left < 0;
        left = -1;
        failed += rc < 0;
        if (!rc) {
            same(&want, &p, n);
            ck_assert(notes == ignored || json_equal(notes, ignored));
        }
        json_decref(ignored);
        cb_chat_prompt_free(&p);
        n++;
    } while (refused);
    ck_assert_msg(n > 100 && failed > n / 2, "%ld of %ld failed", failed, n);
    json_decref(notes);
    cb_chat_prompt_free(&want);
    close_server(&s);
}
END_TEST

START_TEST(places)
{
    struct server s;

    open_server(&s, own_tools);
    ck_assert(s.fit.jinja && s.fit.tools && s.fit.calls && s.fit.systems && s.fit.late);
    ck_assert(s.fit.same_roles && s.fit.assistant_first && s.fit.thoughts && !s.fit.thinking);
    close_server(&s);
    open_server(&s, no_tools);
    ck_assert(s.fit.jinja && !s.fit.tools && !s.fit.calls && !s.fit.systems && !s.fit.late);
    ck_assert(!s.fit.same_roles && !s.fit.assistant_first && !s.fit.thoughts);
    close_server(&s);
    open_server(&s, built_in);
    ck_assert(!s.fit.jinja && !s.fit.tools && s.fit.systems && s.fit.late && s.fit.same_roles);
    close_server(&s);
}
END_TEST

START_TEST(lenient)
{
    static const char *const table[][2] = {
        { "{\"a\": \"x\\ud83dy\"}", "{\"a\":\"x\xef\xbf\xbdy\"}" },
        { "[\"\\ude00\", \"\\ud83d\\ud83d\\ude00\", \"\\ud83d\\ude00\"]",
          "[\"\xef\xbf\xbd\",\"\xef\xbf\xbd\xf0\x9f\x98\x80\",\"\xf0\x9f\x98\x80\"]" },
        { "\"a\\u0000\\\\u0000\"", "\"a\xef\xbf\xbd\\\\u0000\"" },
        { "\"a\nb\xff\"", "\"a\\nb\xef\xbf\xbd\"" },
        { "[18446744073709551615, -9223372036854775808, 9223372036854775807]",
          "[18446744073709551616.0,-9223372036854775808,9223372036854775807]" },
        { "[1e999, -1e999, NaN, -Infinity, 1]", "[1e308,-1e308,null,null,1]" },
        { "\xef\xbb\xbf{}", "{}" },
    };
    static const char *const none[] = { "",     "{", "[1,]", "{\"a\" 1}", "\"a",
                                        "[01]", "x", "{}{}", "\"\\",      "[-]" };
    json_error_t why;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *j = cb_json_read(table[i][0], strlen(table[i][0]), &why), *want;
        ck_assert_msg(j != NULL, "%s: %s", table[i][0], why.text);
        want = json_loads(table[i][1], JSON_DECODE_ANY, NULL);
        ck_assert_msg(json_equal(j, want), "%s", table[i][0]);
        json_decref(j);
        json_decref(want);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(!cb_json_read(none[i], strlen(none[i]), &why), "%s", none[i]);
}
END_TEST

static void open_model(void)
{
    struct tiny t = cb_tiny_small("qwen2");
    char path[128];

    cb_json_watch();
    snprintf(path, sizeof path, "%s/tiny.gguf", cb_folder_make("conversation"));
    cb_tiny_save(&t, path);
    ck_assert_int_eq(cb_model_open(path, NULL, &model), 0);
}

static void close_model(void)
{
    cb_model_close(model);
    cb_folder_remove();
}

int main(void)
{
    Suite *s = suite_create("conversation");
    TCase *t = tcase_create("reading");

    tcase_add_checked_fixture(t, open_model, close_model);
    tcase_add_loop_test(t, each_allocation, 0, 9);
    tcase_add_test(t, places);
    tcase_add_test(t, lenient);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
