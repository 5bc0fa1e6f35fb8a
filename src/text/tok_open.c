/* SPDX-License-Identifier: MIT */
/* tok_open.c - opens the vocabulary and checks it, finds special tokens, and calls the kind of
 * tokenizer that the file names. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/macos.h"
#include "tok_impl.h"

static const struct tok_kind *const kinds[] = { &cb_tok_bpe, &cb_tok_spm, &cb_tok_gemma4 };

/* Control tokens that end a turn or a text, as model families spell them */
static const char *const ends[] = { "<|im_end|>",       "<|eot_id|>",    "<|eom_id|>",
                                    "<|end_of_text|>",  "<|endoftext|>", "</s>",
                                    "<end_of_turn>",    "<|end|>",       "<turn|>",
                                    "<|tool_response>", "[e~[" };

/* ---- the vocabulary ---- */

static int add_slot(struct tok *t, int32_t id)
{
    const struct piece *p = &t->piece[id];
    const uint32_t h = cb_tok_hash(t, p->s, p->n);
    uint32_t i;

    for (i = h & t->slot_mask; t->slot[i].id >= 0; i = (i + 1) & t->slot_mask) {
        const struct piece *q = &t->piece[t->slot[i].id];
        if (t->slot[i].hash == h && q->n == p->n && memcmp(q->s, p->s, p->n) == 0)
            return cb_fail(CB_EFORMAT, "tokenizer.ggml.tokens: tokens %d and %d are both \"%.*s\"",
                           (int)t->slot[i].id, (int)id, p->n < 60 ? (int)p->n : 60, p->s);
    }
    t->slot[i] = (struct vocab_slot){ h, id };
    return CB_OK;
}

static int read_types(struct tok *t, const struct gguf *g)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_kv *kv = NULL;
    const int got = cb_gguf_array(g, key, GGUF_I32, &kv);

    TRY(got);
    if (!got) {
        for (int i = 0; i < t->n_vocab; i++)
            t->piece[i].type = TT_NORMAL;
        return CB_OK;
    }
    if (kv->n != (uint64_t)t->n_vocab)
        return cb_fail(CB_EFORMAT, "%s: %llu types for %d tokens", key, (unsigned long long)kv->n,
                       t->n_vocab);
    for (int i = 0; i < t->n_vocab; i++) {
        const double v = cb_gguf_array_num(kv, (uint64_t)i);
        if (!(v >= TT_NORMAL && v <= TT_BYTE))
            return cb_fail(CB_EFORMAT, "%s: token %d has type %.0f, not 1 to 6", key, i, v);
        t->piece[i].type = (uint32_t)v;
    }
    return CB_OK;
}

static int read_pieces(struct tok *t, const struct gguf *g)
{
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *kv = NULL;
    const int got = cb_gguf_array(g, key, GGUF_STRING, &kv);

    TRY(got);
    if (!got)
        return cb_fail(CB_EFORMAT, "%s: the file has no such key", key);
    if (kv->n < 1 || kv->n > TOK_MAX_VOCAB)
        return cb_fail(CB_EFORMAT, "%s: %llu tokens, not 1 to %d", key, (unsigned long long)kv->n,
                       TOK_MAX_VOCAB);
    t->n_vocab = (int)kv->n;
    t->piece = cb_calloc(kv->n, sizeof *t->piece);
    if (!t->piece)
        return CB_ENOMEM;
    for (int i = 0; i < t->n_vocab; i++) {
        const struct gguf_str s = cb_gguf_array_str(kv, (uint64_t)i);
        if (!s.n || s.n > TOK_MAX_PIECE)
            return cb_fail(CB_EFORMAT, "%s: token %d has %zu bytes, not 1 to %d", key, i, s.n,
                           TOK_MAX_PIECE);
        t->piece[i].s = s.s;
        t->piece[i].n = (uint32_t)s.n;
        if (t->max_len < s.n)
            t->max_len = (uint32_t)s.n;
    }
    return read_types(t, g);
}

static int index_pieces(struct tok *t)
{
    uint32_t n = 64;

    while (n < 2 * (uint32_t)t->n_vocab)
        n *= 2;
    t->slot = cb_calloc(n, sizeof *t->slot);
    if (!t->slot)
        return CB_ENOMEM;
    t->slot_mask = n - 1;
    for (uint32_t i = 0; i < n; i++)
        t->slot[i].id = -1;
    for (int i = 0; i < t->n_vocab; i++)
        TRY(add_slot(t, i));
    return CB_OK;
}

/* Reads a token id from a key; -1 if the key is absent */
static int read_id(const struct tok *t, const struct gguf *g, const char *key, int32_t *id)
{
    int64_t v = -1;
    const int got = cb_gguf_i64(g, key, &v);

    TRY(got);
    if (got && (v < 0 || v >= t->n_vocab))
        return cb_fail(CB_EFORMAT, "%s: %lld is not a token of 0 to %d", key, (long long)v,
                       t->n_vocab - 1);
    *id = (int32_t)v;
    return CB_OK;
}

static void add_end(struct tok *t, int32_t id)
{
    if (id >= 0 && !cb_tok_is_end(t, id) && t->n_end < (int)(sizeof t->end / sizeof *t->end))
        t->end[t->n_end++] = id;
}

static int read_ids(struct tok *t, const struct gguf *g)
{
    int32_t eot, eom;

    TRY(read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos));
    TRY(read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos));
    TRY(read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unk));
    TRY(read_id(t, g, "tokenizer.ggml.eot_token_id", &eot));
    TRY(read_id(t, g, "tokenizer.ggml.eom_token_id", &eom));
    add_end(t, t->eos);
    add_end(t, eot);
    add_end(t, eom);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const int32_t id = cb_tok_find(t, ends[i]);
        /* Gemma 4's files show the marks of tools as text, and so have them as user-defined */
        if (id >= 0 && (t->piece[id].type == TT_CONTROL ||
                        (t->kind == &cb_tok_gemma4 && t->piece[id].type == TT_USER)))
            add_end(t, id);
    }
    return CB_OK;
}

/* ---- special tokens ---- */

static int by_spelling(const void *a, const void *b, void *arg)
{
    const struct tok *t = arg;
    const struct piece *p = &t->piece[*(const int32_t *)a], *q = &t->piece[*(const int32_t *)b];
    const int d = memcmp(p->s, q->s, p->n < q->n ? p->n : q->n);

    return d ? d : (p->n > q->n) - (p->n < q->n);
}

static int is_apart(uint32_t type) /* found in the text before it is split or merged */
{
    return type == TT_UNKNOWN || type == TT_CONTROL || type == TT_USER;
}

static int index_special(struct tok *t)
{
    t->special = cb_calloc((size_t)t->n_vocab, sizeof *t->special);
    if (!t->special)
        return CB_ENOMEM;
    for (int i = 0; i < t->n_vocab; i++) {
        const struct piece *p = &t->piece[i];
        if (!is_apart(p->type))
            continue;
        t->special[t->n_special++] = i;
        t->starts[(unsigned char)p->s[0]] |= p->type == TT_USER ? 1 : 2;
    }
    qsort_r(t->special, (size_t)t->n_special, sizeof *t->special, by_spelling, t);
    return CB_OK;
}

/* special[lo, hi) agree in their first k bytes: the first of them whose byte k is at least c. */
static int bound(const struct tok *t, int lo, int hi, uint32_t k, int c)
{
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        const struct piece *p = &t->piece[t->special[mid]];
        if (p->n > k && (unsigned char)p->s[k] >= c)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* The longest special token at the start of text[len], -1 = none. */
static int32_t special_at(const struct tok *t, const char *text, size_t len, int control)
{
    int lo = 0, hi = t->n_special;
    int32_t best = -1;

    for (uint32_t k = 0; k < len && lo < hi; k++) {
        const int c = (unsigned char)text[k];
        lo = bound(t, lo, hi, k, c);
        hi = bound(t, lo, hi, k, c + 1);
        if (lo < hi && t->piece[t->special[lo]].n == k + 1 &&
            (control || t->piece[t->special[lo]].type == TT_USER))
            best = t->special[lo];
    }
    return best;
}

/* ---- open, close ---- */

static int read_flags(struct tok *t, const struct gguf *g)
{
    TRY(cb_gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos));
    TRY(cb_gguf_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos));
    TRY(cb_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &t->space_prefix));
    t->add_bos &= t->bos >= 0;
    t->add_eos &= t->eos >= 0;
    return CB_OK;
}

static int open_kind(struct tok *t, const struct gguf *g)
{
    const char *key = "tokenizer.ggml.model";
    struct gguf_str s = { "", 0 };
    const int got = cb_gguf_string(g, key, &s);

    TRY(got);
    if (!got)
        return cb_fail(CB_EFORMAT, "%s: the file has no such key", key);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (s.n == strlen(kinds[i]->model) && memcmp(s.s, kinds[i]->model, s.n) == 0)
            t->kind = kinds[i];
    if (!t->kind)
        return cb_fail(CB_EUNSUPPORTED, "%s: \"%.*s\" is not known; gpt2, llama and gemma4 are",
                       key, s.n < 60 ? (int)s.n : 60, s.s);
    TRY(read_pieces(t, g));
    TRY(index_pieces(t));
    TRY(read_ids(t, g));
    TRY(index_special(t));
    TRY(t->kind->open(t, g));
    return read_flags(t, g);
}

int cb_tok_open_as(const struct gguf *g, const char *pre, struct tok **out)
{
    struct tok *t = cb_calloc(1, sizeof *t);
    int rc;

    if (!t)
        return CB_ENOMEM;
    t->key = cb_hash_key();
    t->bos = t->eos = t->unk = -1;
    t->pre = pre;
    rc = open_kind(t, g);
    t->pre = NULL;
    if (rc == CB_OK && pre && t->kind != &cb_tok_bpe)
        rc = cb_fail(CB_EARG, "pre-tokenizer: the model's tokenizer does not split words");
    if (rc < 0) {
        cb_tok_close(t);
        return cb_fail_in(rc, cb_gguf_path(g));
    }
    *out = t;
    return CB_OK;
}

void cb_tok_close(struct tok *t)
{
    if (!t)
        return;
    if (t->kind)
        t->kind->close(t);
    free(t->piece);
    free(t->slot);
    free(t->special);
    free(t);
}

/* ---- questions ---- */

int cb_tok_n_vocab(const struct tok *t)
{
    return t->n_vocab;
}

int32_t cb_tok_bos(const struct tok *t)
{
    return t->bos;
}

int32_t cb_tok_eos(const struct tok *t)
{
    return t->eos;
}

int cb_tok_add_bos(const struct tok *t)
{
    return t->add_bos;
}

int cb_tok_space_prefix(const struct tok *t)
{
    return t->space_prefix;
}

int cb_tok_is_end(const struct tok *t, int32_t id)
{
    for (int i = 0; i < t->n_end; i++)
        if (t->end[i] == id)
            return 1;
    return 0;
}

int cb_tok_ends(const struct tok *t, const int32_t **ids)
{
    *ids = t->end;
    return t->n_end;
}

int32_t cb_tok_find(const struct tok *t, const char *piece)
{
    return cb_tok_lookup(t, piece, strlen(piece));
}

/* ---- text to ids and back ---- */

/* 1: byte i of a text of len bytes lies in a plain stretch; *end: the end of its stretch, plain or
 * not. *b: bounds passed so far; only grows. */
static int is_plain(const struct tok_work *w, size_t i, size_t len, size_t *b, size_t *end)
{
    while (*b < w->n_bound && w->bound[*b] <= i)
        ++*b;
    *end = *b < w->n_bound ? w->bound[*b] : len;
    return (int)(*b & 1);
}

static int is_blank(const struct piece *p)
{
    uint32_t k = 0;

    while (k < p->n && strchr(" \t\r\n", p->s[k]))
        k++;
    return k == p->n;
}

static int is_mark(const struct tok_work *w, int32_t id)
{
    for (size_t i = 0; i < w->n_mark; i++)
        if (w->mark[i] == id)
            return 1;
    return 0;
}

/* Collects user-defined tokens in the marks between plain stretches, except tokens of blanks. */
static int find_marks(struct tok_work *w, const char *text, size_t len)
{
    const struct tok *t = w->t;
    size_t b = 0, end;

    for (size_t i = 0; i < len; i++) {
        if (is_plain(w, i, len, &b, &end)) {
            i = end - 1;
            continue;
        }
        const int32_t id =
            t->starts[(unsigned char)text[i]] ? special_at(t, text + i, end - i, 1) : -1;
        if (id < 0)
            continue;
        if (t->piece[id].type == TT_USER && !is_blank(&t->piece[id]) && !is_mark(w, id)) {
            TRY(cb_grow(&w->mark, &w->cap_mark, w->n_mark + 1, sizeof *w->mark));
            w->mark[w->n_mark++] = id;
        }
        i += t->piece[id].n - 1;
    }
    return CB_OK;
}

/* The special token at the start of text[len], whose first `own` bytes lie in one stretch. Only
 * tokens of blanks may reach into the next stretch. */
static int32_t special_within(const struct tok *t, const char *text, size_t own, size_t len,
                              int control)
{
    const int32_t id = special_at(t, text, len, control);

    if (id < 0 || t->piece[id].n <= own || is_blank(&t->piece[id]))
        return id;
    return special_at(t, text, own, control);
}

/* 1: the blank at text[i], after the mark `id`, is the space that the tokenizer itself puts after
 * a special token. Templates write it for tokenizers that do not. */
static int drops_space(const struct tok_work *w, int32_t id, const char *text, size_t i, size_t len,
                       size_t *b)
{
    size_t end;

    return w->n_bound && w->t->space_prefix && w->t->piece[id].type == TT_CONTROL && i < len &&
           text[i] == ' ' && !is_plain(w, i, len, b, &end);
}

static int encode(struct tok_work *w, const char *text, size_t len, int flags)
{
    const struct tok *t = w->t;
    size_t from = 0, b = 0, end;

    if ((flags & CB_TOK_BOS) && t->add_bos)
        TRY(cb_tok_push(w, t->bos));
    if (w->n_bound)
        TRY(find_marks(w, text, len));
    for (size_t i = 0; i < len;) {
        const int plain = is_plain(w, i, len, &b, &end);
        const int control = (flags & CB_TOK_SPECIAL) && !plain;
        int32_t id = -1;
        if (t->starts[(unsigned char)text[i]] & (control ? 3 : 1))
            id = special_within(t, text + i, end - i, len - i, control);
        if (id < 0 || (plain && is_mark(w, id))) {
            i++;
            continue;
        }
        if (i > from)
            TRY(t->kind->encode(w, text + from, i - from));
        TRY(cb_tok_push(w, id));
        i += t->piece[id].n;
        i += drops_space(w, id, text, i, len, &b);
        from = i;
    }
    if (len > from)
        TRY(t->kind->encode(w, text + from, len - from));
    if ((flags & CB_TOK_EOS) && t->add_eos)
        TRY(cb_tok_push(w, t->eos));
    return CB_OK;
}

static void close_work(struct tok_work *w)
{
    if (w->t->kind->done)
        w->t->kind->done(w);
    free(w->sym);
    free(w->heap);
    for (int i = 0; i < TOK_LANES; i++)
        free(w->lane[i].c);
    free(w->cache);
    free(w->prepared);
    free(w->buf);
    free(w->cp);
    free(w->bound);
    free(w->mark);
}

static int set_bounds(struct tok_work *w, const struct tok_plain *plain, int n)
{
    w->bound = cb_calloc((size_t)n, 2 * sizeof *w->bound);
    if (!w->bound)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++) {
        w->bound[w->n_bound++] = plain[i].from;
        w->bound[w->n_bound++] = plain[i].to;
    }
    return CB_OK;
}

int cb_tok_encode_marked(const struct tok *t, const char *text, size_t len, int flags,
                         const struct tok_plain *plain, int n_plain, int32_t **ids, int *n)
{
    struct tok_work w = { .t = t };
    int rc;

    if (len > TOK_MAX_TEXT)
        return cb_fail(CB_EARG, "text: %zu bytes are more than %d", len, TOK_MAX_TEXT);
    rc = cb_grow(&w.ids, &w.cap, len / 4 + 8, sizeof *w.ids);
    if (rc == CB_OK && len >= TOK_CACHE_FROM)
        rc = cb_tok_cache_open(&w);
    if (rc == CB_OK && n_plain)
        rc = set_bounds(&w, plain, n_plain);
    if (rc == CB_OK && t->kind->prepare)
        rc = t->kind->prepare(&w, &text, &len);
    if (rc == CB_OK)
        rc = encode(&w, text, len, flags);
    close_work(&w);
    if (rc < 0) {
        free(w.ids);
        return rc;
    }
    *ids = w.ids;
    *n = (int)w.n;
    return CB_OK;
}

int cb_tok_encode(const struct tok *t, const char *text, size_t len, int flags, int32_t **ids,
                  int *n)
{
    return cb_tok_encode_marked(t, text, len, flags, NULL, 0, ids, n);
}

int cb_tok_piece(const struct tok *t, int32_t id, int special, char *buf, int cap)
{
    const struct piece *p;

    if (id < 0 || id >= t->n_vocab)
        return 0;
    p = &t->piece[id];
    if (cb_tok_is_special(t, id) && !special)
        return 0;
    if (!is_apart(p->type) && p->type != TT_UNUSED)
        return t->kind->piece(t, id, buf, cap);
    if (cap > 0)
        memcpy(buf, p->s, (int)p->n < cap ? p->n : (size_t)cap);
    return (int)p->n;
}
