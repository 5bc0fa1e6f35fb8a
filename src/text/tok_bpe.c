/* SPDX-License-Identifier: MIT */
/* tok_bpe.c - byte-level BPE: the text is split into words by the model's own regular expressions,
 * then the bytes of each word, written as letters, are merged pair by pair. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok_impl.h"
#include "tok_pre.h"

struct bpe {
    const struct tok_pre *pre;
    pcre2_code *re[MAX_SPLIT];
    pcre2_match_context *ctx;
    struct tok_pairs pairs;
    int32_t byte_id[256]; /* id of each byte's letter; -1 = not in the vocabulary */
    uint32_t letter[256]; /* code point of each byte's letter */
    int16_t byte_of[324]; /* byte of each letter; -1 = none */
};

/* ---- open ---- */

/* Printing characters of Latin-1 stand for themselves, the other bytes for U+0100 onwards. */
static void make_letters(struct tok *t, struct bpe *b)
{
    uint32_t next = 256;

    memset(b->byte_of, -1, sizeof b->byte_of);
    for (uint32_t i = 0; i < 256; i++) {
        const int prints = (i > 32 && i < 127) || (i > 160 && i != 173);
        char s[4];
        b->letter[i] = prints ? i : next++;
        b->byte_of[b->letter[i]] = (int16_t)i;
        b->byte_id[i] = cb_tok_lookup(t, s, (size_t)cb_utf8_put(b->letter[i], s));
    }
}

static int unknown_pre(const char *what, struct gguf_str s)
{
    char list[512] = "";
    size_t n = 0;

    for (int i = 0; cb_tok_pre_row(i); i++) {
        const char *names = cb_tok_pre_row(i)->names;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%.*s", i ? ", " : "",
                              (int)strcspn(names, " "), names);
        if (n >= sizeof list)
            break;
    }
    return cb_fail(CB_EUNSUPPORTED,
                   "%s: \"%.*s\" is not known; a pre-tokenizer can be named instead: %s", what,
                   s.n < 60 ? (int)s.n : 60, s.s, list);
}

static int find_pre(const struct tok *t, struct bpe *b, const struct gguf *g)
{
    const char *what = t->pre ? "pre-tokenizer" : "tokenizer.ggml.pre";
    struct gguf_str s = { "gpt2", 4 }; /* for files older than the key */

    if (t->pre)
        s = (struct gguf_str){ t->pre, strlen(t->pre) };
    else
        TRY(cb_gguf_string(g, "tokenizer.ggml.pre", &s));
    b->pre = cb_tok_pre(s.s, s.n);
    return b->pre ? CB_OK : unknown_pre(what, s);
}

static int compile(struct bpe *b)
{
    /* With a match limit a long run of blanks would fail; the expressions need no stack for one. */
    b->ctx = pcre2_match_context_create(NULL);
    if (!b->ctx)
        return cb_fail(CB_ENOMEM, "out of memory: regular expressions");
    pcre2_set_match_limit(b->ctx, UINT32_MAX);
    pcre2_set_depth_limit(b->ctx, UINT32_MAX);
    for (int i = 0; i < MAX_SPLIT && b->pre->split[i]; i++) {
        int code;
        PCRE2_SIZE at;
        b->re[i] = pcre2_compile((PCRE2_SPTR)b->pre->split[i], PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (!b->re[i])
            return cb_fail(CB_EUNSUPPORTED, "tokenizer.ggml.pre: PCRE2 error %d at %zu of \"%s\"",
                           code, (size_t)at, b->pre->split[i]);
        pcre2_jit_compile(b->re[i], PCRE2_JIT_COMPLETE); /* without JIT matching is only slower */
    }
    return CB_OK;
}

static int open_bpe(struct tok *t, const struct gguf *g)
{
    struct bpe *b = cb_calloc(1, sizeof *b);

    if (!b)
        return CB_ENOMEM;
    t->own = b;
    TRY(find_pre(t, b, g));
    TRY(compile(b));
    make_letters(t, b);
    TRY(cb_tok_pairs_read(t, g, &b->pairs));
    t->add_bos = b->pre->add_bos;
    return CB_OK;
}

static void close_bpe(struct tok *t)
{
    struct bpe *b = t->own;

    if (!b)
        return;
    for (int i = 0; i < MAX_SPLIT; i++)
        pcre2_code_free(b->re[i]);
    pcre2_match_context_free(b->ctx);
    cb_tok_pairs_close(&b->pairs);
    free(b);
}

/* ---- encode ---- */

static int merges(const struct tok *t, const char *word, const struct sym *a, const struct sym *c,
                  uint32_t *rank, int32_t *id)
{
    const struct bpe *b = t->own;

    (void)word;
    return cb_tok_pairs_find(t, &b->pairs, a->id, c->id, rank, id);
}

/* The token that equals a whole word, -1 = none */
static int32_t whole_word(const struct tok *t, const char *s, size_t len)
{
    const struct bpe *b = t->own;
    char buf[TOK_MAX_PIECE + 4];
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        n += (size_t)cb_utf8_put(b->letter[(unsigned char)s[i]], buf + n);
        if (n > t->max_len)
            return -1;
    }
    return cb_tok_lookup(t, buf, n);
}

static int merge_word(struct tok_work *w, const char *s, size_t len)
{
    const struct bpe *b = w->t->own;
    size_t n = 0;

    TRY(cb_tok_syms(w, len));
    for (size_t i = 0; i < len; i++) {
        const int32_t id = b->byte_id[(unsigned char)s[i]];
        if (id >= 0) /* a byte without a token is left out, as in the original */
            cb_tok_sym(w, n++, id, i, 1);
    }
    if (!n)
        return CB_OK;
    TRY(cb_tok_merge(w, s, n, merges));
    for (int32_t i = 0; i >= 0; i = w->sym[i].next)
        TRY(cb_tok_push(w, w->sym[i].id));
    return CB_OK;
}

static int word(struct tok_work *w, const char *s, size_t len)
{
    const struct bpe *b = w->t->own;
    const size_t from = w->n;
    const int seen = cb_tok_cached(w, s, len);
    int32_t id = -1;

    if (seen)
        return seen < 0 ? seen : CB_OK;
    if (b->pre->whole)
        id = whole_word(w->t, s, len);
    if (id >= 0)
        TRY(cb_tok_push(w, id));
    else
        TRY(merge_word(w, s, len));
    cb_tok_remember(w, s, len, from);
    return CB_OK;
}

/* Splits valid UTF-8 s[len] by expression k, and hands the matches and the text between them to the
 * next expression. */
static int split(struct tok_work *w, int k, const char *s, size_t len)
{
    const struct bpe *b = w->t->own;
    pcre2_match_data *m = w->own;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m);

    if (k == MAX_SPLIT || !b->re[k])
        return word(w, s, len);
    for (size_t i = 0; i < len;) {
        const int rc = pcre2_match(b->re[k], (PCRE2_SPTR)s, len, i, PCRE2_NO_UTF_CHECK, m, b->ctx);
        size_t from = len, to = len;
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
            return cb_fail(CB_EFORMAT, "text: PCRE2 error %d at byte %zu", rc, i);
        if (rc >= 0) {
            from = at[0];
            to = at[1];
        }
        if (from > i)
            TRY(split(w, k + 1, s + i, from - i));
        if (to > from)
            TRY(split(w, k + 1, s + from, to - from));
        i = to;
    }
    return CB_OK;
}

static int valid_run(struct tok_work *w, const char *s, size_t len)
{
    const struct bpe *b = w->t->own;

    if (b->pre->nfc) {
        TRY(cb_tok_nfc(w, s, len, &len));
        s = w->buf;
    }
    return split(w, 0, s, len);
}

/* Invalid UTF-8 becomes words of its own: nothing is lost or replaced. */
static int encode_bpe(struct tok_work *w, const char *text, size_t len)
{
    size_t from = 0, i = 0;

    if (!w->own)
        w->own = pcre2_match_data_create(1, NULL);
    if (!w->own)
        return cb_fail(CB_ENOMEM, "out of memory: regular expressions");
    while (i < len) {
        int n = cb_utf8_len(text + i, len - i);
        if (n) {
            i += (size_t)n;
            continue;
        }
        if (i > from)
            TRY(valid_run(w, text + from, i - from));
        for (from = i; i < len && !cb_utf8_len(text + i, len - i);)
            i++;
        TRY(word(w, text + from, i - from));
        from = i;
    }
    return i > from ? valid_run(w, text + from, i - from) : CB_OK;
}

static void done_bpe(struct tok_work *w)
{
    pcre2_match_data_free(w->own);
}

/* ---- decode ---- */

/* A token with a character that is not a byte's letter stands for its own spelling. */
static int piece_bpe(const struct tok *t, int32_t id, char *buf, int cap)
{
    const struct bpe *b = t->own;
    const struct piece *p = &t->piece[id];
    const unsigned char *s = (const unsigned char *)p->s;
    int n = 0;

    for (uint32_t i = 0; i < p->n; n++) {
        uint32_t c = s[i++];
        if (c >= 0xC0 && c < 0xE0 && i < p->n)
            c = (c & 0x1F) << 6 | (s[i++] & 0x3F);
        else if (c >= 0x80)
            c = UINT32_MAX;
        if (c >= sizeof b->byte_of / sizeof *b->byte_of || b->byte_of[c] < 0) {
            if (cap > 0)
                memcpy(buf, p->s, (int)p->n < cap ? p->n : (size_t)cap);
            return (int)p->n;
        }
        if (n < cap)
            buf[n] = (char)b->byte_of[c];
    }
    return n;
}

const struct tok_kind cb_tok_bpe = {
    .model = "gpt2",
    .open = open_bpe,
    .close = close_bpe,
    .encode = encode_bpe,
    .piece = piece_bpe,
    .done = done_bpe,
};
