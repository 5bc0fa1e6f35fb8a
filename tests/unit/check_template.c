/* SPDX-License-Identifier: MIT */
/* check_template.c - chat forms are told from a model's template and render as it does. The texts
 * expected were rendered from the models' own templates by Jinja. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "kit/gguf_make.h"
#include "kit/suite.h"
#include "text/template.h"

/* own: the template of the file; spm: which kind of vocabulary it has */
static struct gguf *make(const char *own, int spm, int space)
{
    static const char *const tokens[] = { "a", "<bos>", "<eos>" };
    struct gguf_make m;
    struct gguf *g;

    cb_make_init(&m);
    cb_gguf_put_string(&m.w, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    cb_make_strings(&m, "tokenizer.ggml.tokens", tokens, 3);
    cb_gguf_put_i64(&m.w, "tokenizer.ggml.bos_token_id", GGUF_U32, 1);
    cb_gguf_put_i64(&m.w, "tokenizer.ggml.eos_token_id", GGUF_U32, 2);
    cb_gguf_put_bool(&m.w, "tokenizer.ggml.add_space_prefix", space);
    if (own)
        cb_gguf_put_string(&m.w, "tokenizer.chat_template", own);
    g = cb_make_open(&m);
    ck_assert_msg(g != NULL, "%s", cb_error());
    return g;
}

/* Templates cut down to what tells them apart */
#define SMOL                                                                                       \
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind."      \
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n'}}"
#define QWEN                                                                                       \
    "{{- '<|im_start|>system\\n' }} {{- '<|im_start|>system\\n' + messages[0].content + "          \
    "'<|im_end|>\\n' }} {{- '<|im_start|>system\\nYou\\'re Q.<|im_end|>\\n' }}"
#define PLAIN  "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' }}"
#define BOSSY  "{{ bos_token }}" PLAIN
#define LLAMA2 "{{ bos_token + '[INST] ' }} '<<SYS>>\\n' "
#define LLAMA3 "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
#define LLAMA31                                                                                    \
    "{%- set date_string = \"1 May 2025\" %} {{- \"Cutting Knowledge Date: December 2023\\n\" "    \
    "}}" LLAMA3
#define MISTRAL1 "{{ '[INST] ' + message['content'] + ' [/INST]' }}"
#define MISTRAL3 "{{ '[INST] ' + message['content'] + '[/INST]' }}"
#define MISTRAL7 "{{ '[SYSTEM_PROMPT]' + s + '[/SYSTEM_PROMPT]' }} '[INST]' '[/INST]'"
#define GEMMA    "{{ '<start_of_turn>' + role + '\n' }}"
#define ZEPHYR   "{% if x %}{{ '<|user|>\\n' + message['content'] + eos_token }}{% endif %}"

/* The conversation: S a system text, U and A turns; every text has blanks to trim. */
static const struct cb_message all[] = {
    { "system", " S " }, { "user", " U " }, { "assistant", " A " }, { "user", " V " }
};
enum { ALL, NO_SYSTEM, ONE }; /* the whole; without the system text; " U " alone */

#define C(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define CASK          "<|im_start|>assistant\n"
#define H(role, text) "<|start_header_id|>" role "<|end_header_id|>\n\n" text "<|eot_id|>"
#define HASK          "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define NOTE(day)     "Cutting Knowledge Date: December 2023\nToday Date: " day "\n\n"
#define T(role, text) "<start_of_turn>" role "\n" text "<end_of_turn>\n"
#define Z(role, text) "<|" role "|>\n" text "<eos>\n"

static const struct row {
    const char *own;
    const char *name; /* expected */
    int spm, space, msgs, has_bos;
    const char *want;
} rows[] = {
    { SMOL, "chatml", 0, 0, ONE, 0, C("system", "Be kind.") C("user", " U ") CASK },
    { SMOL, "chatml", 0, 0, ALL, 0,
      C("system", " S ") C("user", " U ") C("assistant", " A ") C("user", " V ") CASK },
    { QWEN, "chatml", 0, 0, ONE, 0, C("system", "You're Q.") C("user", " U ") CASK },
    { PLAIN, "chatml", 0, 0, ONE, 0, C("user", " U ") CASK },
    { BOSSY, "chatml", 0, 0, ONE, 1, "<bos>" C("user", " U ") CASK },
    { LLAMA2, "llama2", 1, 1, ONE, 1, "<bos>[INST] U [/INST]" },
    { LLAMA2, "llama2", 1, 1, ALL, 1,
      "<bos>[INST] <<SYS>>\n S \n<</SYS>>\n\n U [/INST] A <eos><bos>[INST] V [/INST]" },
    { LLAMA3, "llama3", 0, 0, ALL, 1,
      "<bos>" H("system", "S") H("user", "U") H("assistant", "A") H("user", "V") HASK },
    { LLAMA31, "llama3.1", 0, 0, ONE, 1,
      "<bos>" H("system", NOTE("1 May 2025")) H("user", "U") HASK },
    { LLAMA31, "llama3.1", 0, 0, NO_SYSTEM, 1,
      "<bos>" H("system", NOTE("1 May 2025")) H("user", "U") H("assistant", "A") H("user", "V")
          HASK },
    { MISTRAL1, "mistral-v1", 1, 1, ALL, 1,
      "<bos>[INST]  S \n\n U  [/INST]  A <eos>[INST]  V  [/INST]" },
    { MISTRAL1, "mistral-v1", 1, 0, ONE, 1, "<bos> [INST]  U  [/INST]" },
    { MISTRAL3, "mistral-v3", 1, 1, ALL, 1, "<bos>[INST] U [/INST]A<eos>[INST] S \n\n V [/INST]" },
    { MISTRAL3, "mistral-v3", 1, 0, NO_SYSTEM, 1,
      "<bos>[INST]  U [/INST] A<eos>[INST]  V [/INST]" },
    { MISTRAL7, "mistral-v7", 0, 0, ALL, 1,
      "<bos>[SYSTEM_PROMPT] S [/SYSTEM_PROMPT][INST] U [/INST] A <eos>[INST] V [/INST]" },
    { GEMMA, "gemma", 1, 0, ALL, 1,
      "<bos>" T("user", " S \n\nU") T("model", "A") T("user", "V") "<start_of_turn>model\n" },
    { ZEPHYR, "zephyr", 1, 1, ALL, 0,
      Z("system", " S ") Z("user", " U ") Z("assistant", " A ")
          Z("user", " V ") "<|assistant|>\n" },
};

/* What the messages wrote is told from the form's marks: in order, and every text of `all` is S, U,
 * A or V between blanks. */
static void check_own(const struct chat_text *t)
{
    size_t at = 0;

    for (int i = 0; i < t->n_own; i++) {
        const struct tok_plain *p = &t->own[i];
        ck_assert(p->from >= at && p->to >= p->from && p->to <= t->n);
        for (at = p->from; at < p->to; at++)
            ck_assert(!strchr("<>[]|", t->s[at]));
    }
    for (const char *u = t->s; (u = strpbrk(u, "UV")); u++) {
        int inside = 0;
        for (int i = 0; i < t->n_own; i++)
            inside |= (size_t)(u - t->s) >= t->own[i].from && (size_t)(u - t->s) < t->own[i].to;
        ck_assert(inside);
    }
}

START_TEST(rendered)
{
    const struct row *r = &rows[_i];
    struct gguf *g = make(r->own, r->spm, r->space);
    const struct chat_form *f;
    struct chat_text out;
    int n = r->msgs == ALL ? 4 : r->msgs == NO_SYSTEM ? 3 : 1;

    ck_assert_msg(cb_chat_form(g, NULL, &f) == 0, "%s", cb_error());
    ck_assert_str_eq(cb_chat_form_name(f), r->name);
    ck_assert_int_eq(cb_chat_form_render(g, f, all + (r->msgs != ALL), n, 1, &out), 0);
    ck_assert_str_eq(out.s, r->want);
    ck_assert_uint_eq(out.n, strlen(out.s));
    ck_assert_int_eq(out.has_bos, r->has_bos);
    check_own(&out);
    cb_chat_text_free(&out);
    cb_gguf_close(g);
}
END_TEST

START_TEST(unknown_forms)
{
    const struct chat_form *f = NULL;
    struct gguf *g = make("{{ 'Human: ' + message }}", 0, 0);

    ck_assert_int_lt(cb_chat_form(g, NULL, &f), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "chatml"));
    for (int i = 0; cb_chat_form_row(i); i++)
        ck_assert_ptr_nonnull(strstr(cb_error(), cb_chat_form_name(cb_chat_form_row(i))));
    ck_assert_int_lt(cb_chat_form(g, "vicuna", &f), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "vicuna"));
    ck_assert_ptr_nonnull(strstr(cb_error(), "zephyr"));
    cb_gguf_close(g);
    g = make("{{ '<|im_start|>user<|im_sep|>' + message.content }}", 0, 0);
    ck_assert_int_lt(cb_chat_form(g, NULL, &f), 0);
    cb_gguf_close(g);
    g = make(NULL, 0, 0);
    ck_assert_int_lt(cb_chat_form(g, NULL, &f), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "has none"));
    cb_gguf_close(g);
    ck_assert_ptr_null(cb_chat_form_row(-1));
}
END_TEST

START_TEST(by_name_without_a_model)
{
    const struct chat_form *f;
    struct chat_text out;

    for (int i = 0; cb_chat_form_row(i); i++) {
        ck_assert_int_eq(cb_chat_form(NULL, cb_chat_form_name(cb_chat_form_row(i)), &f), 0);
        ck_assert_ptr_eq(f, cb_chat_form_row(i));
        ck_assert_int_eq(cb_chat_form_render(NULL, f, all, 4, 1, &out), 0);
        ck_assert(!out.has_bos && strstr(out.s, "S") && strstr(out.s, "V"));
        cb_chat_text_free(&out);
        ck_assert_int_eq(cb_chat_form_render(NULL, f, NULL, 0, 0, &out), 0);
        cb_chat_text_free(&out);
    }
}
END_TEST

START_TEST(bad_messages)
{
    static const struct cb_message role[] = { { "wizard", "x" } };
    static const struct cb_message order[] = { { "user", "x" }, { "system", "y" } };
    const struct chat_form *f;
    struct chat_text out = { .s = NULL };

    ck_assert_int_eq(cb_chat_form(NULL, "llama2", &f), 0);
    ck_assert_int_lt(cb_chat_form_render(NULL, f, role, 1, 1, &out), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "wizard"));
    ck_assert_int_lt(cb_chat_form_render(NULL, f, order, 2, 1, &out), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "llama2"));
    ck_assert_ptr_null(out.s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("template");
    TCase *c = tcase_create("template");

    tcase_add_loop_test(c, rendered, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(c, unknown_forms);
    tcase_add_test(c, by_name_without_a_model);
    tcase_add_test(c, bad_messages);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
