/* SPDX-License-Identifier: MIT */
/* check_tok.c - ids against those of the original tokenizers (vectors/make_tokenizer.py), bytes
 * through and back, special tokens, long words, whole characters in a stream. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "gguf/gguf.h"
#include "kit/inside.h"
#include "kit/suite.h"
#include "text/tok_impl.h"

static const char *const vectors[] = { "gpt2",
                                       "llama-bpe",
                                       "qwen2",
                                       "smollm",
                                       "spm",
                                       "spm-plain",
                                       "gemma4",
                                       "smollm2-135m-instruct",
                                       "qwen2.5-coder-0.5b-instruct",
                                       "gemma-3-270m" };
enum { N_OWN = 7, N_VECTORS = sizeof vectors / sizeof *vectors };

struct open_tok {
    struct gguf *g;
    struct tok *t;
};

static void data_path(char *path, size_t n, const char *name, const char *end)
{
    const char *dir = getenv("srcdir");
    snprintf(path, n, "%s/tests/vectors/tok-%s.%s", dir ? dir : ".", name, end);
}

static struct open_tok open_path(const char *path)
{
    struct open_tok o = { 0 };
    ck_assert_msg(cb_gguf_open(path, &o.g) == 0, "%s", cb_error());
    ck_assert_msg(cb_tok_open(o.g, &o.t) == 0, "%s", cb_error());
    return o;
}

static struct open_tok open_own(const char *name)
{
    char path[1024];
    data_path(path, sizeof path, name, "gguf");
    return open_path(path);
}

static void close_tok(struct open_tok o)
{
    cb_tok_close(o.t);
    cb_gguf_close(o.g);
}

/* The vectors' model: beside them, or in the cache; 0 = in neither */
static int find_model(const char *name, const char *file, char *path, size_t n)
{
    const char *cache = getenv("CTXBANK_CACHE"), *home = getenv("HOME");
    FILE *f;

    data_path(path, n, name, "gguf");
    if ((f = fopen(path, "rb")) == NULL) {
        if (cache)
            snprintf(path, n, "%s/models/%s", cache, file);
        else
            snprintf(path, n, "%s/.cache/ctxbank/models/%s", home ? home : "", file);
        f = fopen(path, "rb");
    }
    if (f)
        fclose(f);
    return f != NULL;
}

static void check_ids(const struct tok *t, const char *text, size_t len, int special,
                      const json_t *want)
{
    int32_t *ids;
    int n;

    ck_assert_int_eq(cb_tok_encode(t, text, len, special ? CB_TOK_SPECIAL : 0, &ids, &n), 0);
    for (int i = 0; i < n || i < (int)json_array_size(want); i++) {
        const int w = i < (int)json_array_size(want)
                          ? (int)json_integer_value(json_array_get(want, (size_t)i))
                          : -1;
        const int got = i < n ? ids[i] : -1;
        ck_assert_msg(got == w, "\"%s\", special %d: token %d is %d, not %d", text, special, i, got,
                      w);
    }
    free(ids);
}

START_TEST(ids_are_the_originals)
{
    const char *name = vectors[_i];
    char path[1024];
    json_error_t e;
    json_t *doc, *row;
    size_t i;
    struct open_tok o;

    data_path(path, sizeof path, name, "json");
    doc = json_load_file(path, JSON_ALLOW_NUL, &e);
    ck_assert_msg(doc != NULL, "%s: %s", path, e.text);
    if (!find_model(name, json_string_value(json_object_get(doc, "file")), path, sizeof path)) {
        ck_assert_int_ge(_i, N_OWN);
        cb_skip("%s is not there", path);
        json_decref(doc);
        return;
    }
    o = open_path(path);
    ck_assert_uint_gt(json_array_size(json_object_get(doc, "cases")), 200);
    json_array_foreach(json_object_get(doc, "cases"), i, row)
    {
        const json_t *text = json_array_get(row, 0);
        check_ids(o.t, json_string_value(text), json_string_length(text),
                  (int)json_integer_value(json_array_get(row, 1)), json_array_get(row, 2));
    }
    close_tok(o);
    json_decref(doc);
}
END_TEST

/* ---- bytes there and back ---- */

/* Pieces of the ids end to end; the caller frees. */
static char *join(const struct tok *t, const int32_t *ids, int n, int special, size_t *len)
{
    char *s = calloc((size_t)n * 4096 + 1, 1);

    *len = 0;
    for (int i = 0; i < n; i++) {
        const int k = cb_tok_piece(t, ids[i], special, s + *len, 4096);
        ck_assert_int_le(k, 4096);
        *len += (size_t)k;
    }
    return s;
}

static void round_trip(const struct tok *t, const char *text, size_t len)
{
    int32_t *ids;
    int n;
    size_t got;
    char *s;
    const size_t skip = len && cb_tok_space_prefix(t);

    ck_assert_int_eq(cb_tok_encode(t, text, len, CB_TOK_SPECIAL, &ids, &n), 0);
    s = join(t, ids, n, 1, &got);
    ck_assert_uint_eq(got, len + skip);
    ck_assert_mem_eq(s + skip, text, len);
    free(s);
    free(ids);
}

static uint32_t rnd(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Noise of several kinds: all bytes, ASCII, bytes of cut characters, a few bytes that merge well */
static size_t noise(char *s, size_t most, uint32_t *seed)
{
    static const char bits[][8] = {
        "\xE2\x96\x81", "the ", "\xF0\x9F\x98\x80", "  \n", "\xED\xA0\x80", "\xC3\xA9", "'ll", "12"
    };
    const size_t n = rnd(seed) % most;
    const int kind = (int)(rnd(seed) % 4);

    for (size_t i = 0; i < n; i++) {
        const char *b = bits[rnd(seed) % 8];
        const uint32_t r = rnd(seed);
        s[i] = kind == 0 ? (char)r : kind == 1 ? (char)(r % 128) : b[r % (strlen(b) + 1)];
        if (kind == 3 && r % 8 == 0)
            s[i] = (char)(r >> 8);
    }
    return n;
}

/* smollm's vocabulary lacks bytes, qwen2's texts are normalised, "spm" puts a space after the
 * user-defined tokens and the control tokens that no noise here makes. */
START_TEST(no_byte_is_lost)
{
    static const char *const names[] = { "gpt2", "llama-bpe", "spm", "spm-plain", "gemma4" };
    struct open_tok o = open_own(names[_i]);
    uint32_t seed = 7;
    char s[3000];

    for (int i = 0; i < 3000; i++) {
        size_t n = noise(s, i % 50 ? 60 : sizeof s, &seed);
        /* U+2581 and a space are one to SentencePiece */
        for (size_t k = 0; _i >= 2 && k + 3 <= n; k++)
            if (memcmp(s + k, "\xE2\x96\x81", 3) == 0)
                s[k] = 'x';
        round_trip(o.t, s, n);
    }
    close_tok(o);
}
END_TEST

START_TEST(bytes_without_a_letter_are_left_out)
{
    struct open_tok o = open_own("smollm");
    int32_t *ids, *want;
    int n, m;

    ck_assert_int_eq(cb_tok_encode(o.t, "a\x04z\xFFz", 5, 0, &ids, &n), 0);
    ck_assert_int_eq(cb_tok_encode(o.t, "a\x04z", 3, 0, &want, &m), 0);
    ck_assert_int_eq(n, m + 1);
    free(ids);
    free(want);
    close_tok(o);
}
END_TEST

/* A text long enough for the cache of words gives what its words give one by one. */
START_TEST(cache_changes_nothing)
{
    static const char *const names[] = { "gpt2", "llama-bpe", "qwen2", "smollm" };
    struct open_tok o = open_own(names[_i]);
    uint32_t seed = 3;
    char text[40000];
    int32_t *all, *one;
    size_t len = 0;
    int n_all, n_one, at = 0;

    while (len + 16 < sizeof text) {
        const int n = 1 + (int)(rnd(&seed) % (len % 7 ? 3 : 12));
        text[len++] = ' ';
        for (int i = 0; i < n; i++)
            text[len++] = (char)('a' + rnd(&seed) % 5);
    }
    ck_assert_int_eq(cb_tok_encode(o.t, text, len, 0, &all, &n_all), 0);
    for (size_t i = 0, k; i < len; i = k) {
        for (k = i + 1; k < len && text[k] != ' '; k++)
            ;
        ck_assert_int_eq(cb_tok_encode(o.t, text + i, k - i, 0, &one, &n_one), 0);
        ck_assert_int_le(at + n_one, n_all);
        ck_assert_mem_eq(all + at, one, sizeof *one * (size_t)n_one);
        at += n_one;
        free(one);
    }
    ck_assert_int_eq(at, n_all);
    free(all);
    close_tok(o);
}
END_TEST

/* ---- long words: anything quadratic would take minutes ---- */

START_TEST(long_words)
{
    static const char *const unit[] = {
        "a",    "abcdefghij", "\xE5\xA5\xBD",     " ",    "\n ",
        "\xFF", "1",          "\xCC\x96\xCC\x80", "\t\r", "<|im_end|"
    };
    struct open_tok o = open_own(vectors[_i]);
    const size_t len = 300000;
    char *text = malloc(len);
    int32_t *ids;
    int n;

    for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
        const size_t k = strlen(unit[u]);
        for (size_t i = 0; i < len; i++)
            text[i] = unit[u][i % k];
        text[len - 1] = 'x';
        ck_assert_int_eq(cb_tok_encode(o.t, text, len, CB_TOK_SPECIAL, &ids, &n), 0);
        ck_assert_int_ge(n, 1);
        free(ids);
    }
    free(text);
    close_tok(o);
}
END_TEST

/* ---- special tokens ---- */

/* Any pairs merge here: the rank says nothing of the order in which candidates come up, and equal
 * ranks have several results. */
static int any_pair(const struct tok *t, const char *word, const struct sym *a, const struct sym *b,
                    uint32_t *rank, int32_t *id)
{
    (void)t;
    (void)word;
    *rank = (uint32_t)(a->id * 31 + b->id * 17) % 41;
    *id = (a->id * 3 + b->id * 5) % 13;
    return (a->id + 2 * b->id) % 5 != 0;
}

/* One merge after the other: each time the lowest rank of all pairs, then the leftmost. */
static int merge_plainly(struct sym *s, int n)
{
    for (;;) {
        uint32_t best = UINT32_MAX, rank;
        int32_t id, best_id = 0;
        int at = -1;
        for (int i = 0; i + 1 < n; i++)
            if (any_pair(NULL, NULL, &s[i], &s[i + 1], &rank, &id) && rank < best) {
                best = rank;
                best_id = id;
                at = i;
            }
        if (at < 0)
            return n;
        s[at].id = best_id;
        s[at].len += s[at + 1].len;
        memmove(&s[at + 1], &s[at + 2], (size_t)(n - at - 2) * sizeof *s);
        n--;
    }
}

/* Words of 2 to 3000 symbols, random ones and runs, merge as the plain way does. */
START_TEST(merges_in_order)
{
    const int n = _i < 8 ? 2 + 40 * _i : 1000 + 250 * (_i - 8);
    struct tok_work w = { 0 };
    struct sym *plain = cb_calloc((size_t)n, sizeof *plain);
    uint32_t x = (uint32_t)_i * 2654435761u + 1;
    int left;

    ck_assert_int_eq(cb_tok_syms(&w, (size_t)n), 0);
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        cb_tok_sym(&w, (size_t)i, _i % 3 ? (int32_t)(x >> 20) % 7 : i / 500, (size_t)i, 1);
        plain[i] = w.sym[i];
    }
    ck_assert_int_eq(cb_tok_merge(&w, NULL, (size_t)n, any_pair), 0);
    left = merge_plainly(plain, n);
    for (int32_t i = 0, k = 0; i >= 0; i = w.sym[i].next, k++) {
        ck_assert_int_lt(k, left);
        ck_assert_int_eq(w.sym[i].id, plain[k].id);
        ck_assert_uint_eq(w.sym[i].len, plain[k].len);
        left -= w.sym[i].next < 0 ? k + 1 : 0;
    }
    ck_assert_int_eq(left, 0);
    for (int i = 0; i < TOK_LANES; i++)
        free(w.lane[i].c);
    free(w.sym);
    free(w.heap);
    free(plain);
}
END_TEST

START_TEST(bos_and_ends)
{
    struct open_tok o = open_own("spm");
    int32_t *ids;
    int n;

    ck_assert_int_eq(cb_tok_bos(o.t), 1);
    ck_assert_int_eq(cb_tok_eos(o.t), 2);
    ck_assert(cb_tok_add_bos(o.t) && cb_tok_space_prefix(o.t));
    ck_assert(cb_tok_is_end(o.t, 2) && !cb_tok_is_end(o.t, 1) && !cb_tok_is_end(o.t, -1));
    ck_assert(cb_tok_is_special(o.t, 1) && !cb_tok_is_special(o.t, 300));
    ck_assert_int_eq(cb_tok_encode(o.t, "", 0, CB_TOK_BOS, &ids, &n), 0);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(ids[0], 1);
    free(ids);
    close_tok(o);

    o = open_own("qwen2");
    ck_assert(!cb_tok_add_bos(o.t) && !cb_tok_space_prefix(o.t));
    ck_assert(cb_tok_is_end(o.t, cb_tok_find(o.t, "<|endoftext|>")));
    ck_assert(cb_tok_is_end(o.t, cb_tok_find(o.t, "<|im_end|>")));
    ck_assert(!cb_tok_is_end(o.t, cb_tok_find(o.t, "<|im_start|>")));
    ck_assert_int_eq(cb_tok_find(o.t, "<|im_nothing|>"), -1);
    ck_assert_int_eq(cb_tok_encode(o.t, "", 0, CB_TOK_BOS, &ids, &n), 0);
    ck_assert_int_eq(n, 0);
    free(ids);
    close_tok(o);
}
END_TEST

START_TEST(pieces_of_special_tokens)
{
    struct open_tok o = open_own("gpt2");
    char b[16] = "................";
    const int32_t end = cb_tok_find(o.t, "<|im_end|>"), call = cb_tok_find(o.t, "<tool_call>");

    ck_assert_int_eq(cb_tok_piece(o.t, end, 0, b, sizeof b), 0);
    ck_assert_int_eq(cb_tok_piece(o.t, end, 1, b, 4), 10);
    ck_assert_mem_eq(b, "<|im..", 6);
    ck_assert_int_eq(cb_tok_piece(o.t, call, 0, b, sizeof b), 11);
    ck_assert_mem_eq(b, "<tool_call>", 11);
    ck_assert_int_eq(cb_tok_piece(o.t, -1, 1, b, sizeof b), 0);
    ck_assert_int_eq(cb_tok_piece(o.t, cb_tok_n_vocab(o.t), 1, b, sizeof b), 0);
    ck_assert_int_eq(cb_tok_piece(o.t, 100, 1, NULL, 0), 1);
    close_tok(o);
}
END_TEST

/* ---- whole characters ---- */

START_TEST(stream_of_characters)
{
#define X "\xEF\xBF\xBD"
    static const char *const rows[][2] = {
        { "abc", "abc" },
        { "\xC3\xA9\xE5\xA5\xBD\xF0\x9F\x98\x80", "\xC3\xA9\xE5\xA5\xBD\xF0\x9F\x98\x80" },
        { "a\x80z", "a" X "z" },
        { "\xC3", X },
        { "\xF0\x9F\x98", X },
        { "\xF0\x9F\x98z", X "z" },
        { "\xE5\xE5\xA5\xBD", X "\xE5\xA5\xBD" },
        { "\xC0\xAF", X X },
        { "\xED\xA0\x80", X X X },
        { "\xE0\x80\x80", X X X },
        { "\xF4\x90\x80\x80", X X X X },
        { "\xF5\xFF", X X },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int n = (int)strlen(rows[r][0]);
        for (int step = 1; step <= n; step++) {
            struct utf8_hold h = { { 0 }, 0 };
            char out[64];
            int m = 0;
            for (int i = 0; i < n; i += step)
                m += cb_utf8_push(&h, rows[r][0] + i, n - i < step ? n - i : step, out + m);
            m += cb_utf8_flush(&h, out + m);
            ck_assert_int_eq(m, (int)strlen(rows[r][1]));
            ck_assert_mem_eq(out, rows[r][1], m);
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tok");
    TCase *c = tcase_create("tok");

    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, ids_are_the_originals, 0, N_VECTORS);
    tcase_add_loop_test(c, no_byte_is_lost, 0, 5);
    tcase_add_test(c, bytes_without_a_letter_are_left_out);
    tcase_add_loop_test(c, cache_changes_nothing, 0, 4);
    tcase_add_loop_test(c, long_words, 0, N_OWN);
    tcase_add_loop_test(c, merges_in_order, 0, 16);
    tcase_add_test(c, bos_and_ends);
    tcase_add_test(c, pieces_of_special_tokens);
    tcase_add_test(c, stream_of_characters);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
