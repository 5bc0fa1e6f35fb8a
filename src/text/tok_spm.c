/* SPDX-License-Identifier: MIT */
/* tok_spm.c - SentencePiece's BPE as Llama 1 and 2, Mistral and Gemma use it: characters are merged
 * into pieces, the best score first; characters without a piece fall back to byte tokens.
 *
 * A space is written U+2581, and one goes in front of each run of text between special tokens, as
 * the models' own files say (normaliser Prepend) and as their authors trained them. With
 * legacy=False, transformers puts it in front of the first run only.
 *
 * Gemma 4 has such pieces, but merges pairs in the order of a list, as BPE does, puts no space in
 * front, and has pieces of line breaks that no pairs make. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tok_impl.h"

#define SPACE   "\xE2\x96\x81" /* U+2581 */
#define N_SPACE 3

struct spm {
    int32_t *rank;            /* [n_vocab] rank by falling score; -1 = never merged */
    struct tok_pairs pairs;   /* of a list of merges: rank says only which pieces take part */
    int32_t byte_id[256];     /* -1 = no byte token */
    uint8_t joins_space[256]; /* 1: in some piece a space follows this byte (not a space's) */
};

/* ---- open ---- */

struct scored {
    double score;
    int32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *p = a, *q = b;
    return p->score != q->score ? (p->score < q->score ? 1 : -1)
                                : (p->id > q->id) - (p->id < q->id);
}

static int rank_scores(struct tok *t, struct spm *m, const struct gguf_kv *kv, struct scored *by)
{
    int32_t rank = 0;

    for (int i = 0; i < t->n_vocab; i++) {
        by[i] = (struct scored){ cb_gguf_array_num(kv, (uint64_t)i), i };
        if (isnan(by[i].score))
            return cb_fail(CB_EFORMAT, "tokenizer.ggml.scores: that of token %d is not a number",
                           i);
    }
    qsort(by, (size_t)t->n_vocab, sizeof *by, by_score);
    for (int i = 0; i < t->n_vocab; i++) {
        const uint32_t type = t->piece[by[i].id].type;
        if (i && by[i].score < by[i - 1].score)
            rank++;
        m->rank[by[i].id] = type == TT_NORMAL || type == TT_UNUSED ? rank : -1;
    }
    return CB_OK;
}

static int read_scores(struct tok *t, struct spm *m, const struct gguf *g)
{
    const char *key = "tokenizer.ggml.scores";
    const struct gguf_kv *kv = NULL;
    const int got = cb_gguf_array(g, key, GGUF_F32, &kv);
    struct scored *by;
    int rc;

    TRY(got);
    if (!got)
        return cb_fail(CB_EFORMAT, "%s: the file has no such key", key);
    if (kv->n != (uint64_t)t->n_vocab)
        return cb_fail(CB_EFORMAT, "%s: %llu scores for %d tokens", key, (unsigned long long)kv->n,
                       t->n_vocab);
    m->rank = cb_calloc((size_t)t->n_vocab, sizeof *m->rank);
    by = cb_calloc((size_t)t->n_vocab, sizeof *by);
    rc = m->rank && by ? rank_scores(t, m, kv, by) : CB_ENOMEM;
    free(by);
    return rc;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of a piece such as "<0x0A>", -1 = none */
static int byte_of(const struct piece *p)
{
    if (p->n != 6 || memcmp(p->s, "<0x", 3) != 0 || p->s[5] != '>' || hex(p->s[3]) < 0 ||
        hex(p->s[4]) < 0)
        return -1;
    return hex(p->s[3]) * 16 + hex(p->s[4]);
}

static int read_bytes(struct tok *t, struct spm *m)
{
    int missing = -1;

    memset(m->byte_id, -1, sizeof m->byte_id);
    for (int i = 0; i < t->n_vocab; i++) {
        if (t->piece[i].type != TT_BYTE)
            continue;
        if (byte_of(&t->piece[i]) < 0)
            return cb_fail(CB_EFORMAT,
                           "tokenizer.ggml.tokens: byte token %d is \"%.*s\", not <0x00> to <0xFF>",
                           i, t->piece[i].n < 60 ? (int)t->piece[i].n : 60, t->piece[i].s);
        m->byte_id[byte_of(&t->piece[i])] = i;
    }
    for (int i = 0; i < 256; i++)
        if (m->byte_id[i] < 0)
            missing = i;
    if (missing >= 0 && t->unk < 0)
        return cb_fail(
            CB_EFORMAT,
            "tokenizer.ggml.tokens: no byte token <0x%02X>, and no unknown token instead",
            (unsigned)missing);
    return CB_OK;
}

/* Finds the bytes after which text may be cut before a space: almost all. Short words are fast. */
static void find_joins(struct tok *t, struct spm *m)
{
    for (int i = 0; i < t->n_vocab; i++) {
        const struct piece *p = &t->piece[i];
        uint32_t k = 0;
        if (m->rank[i] < 0)
            continue;
        while (k + N_SPACE <= p->n && memcmp(p->s + k, SPACE, N_SPACE) == 0)
            k += N_SPACE;
        for (k++; k + N_SPACE <= p->n; k++)
            if (memcmp(p->s + k, SPACE, N_SPACE) == 0)
                m->joins_space[(unsigned char)p->s[k - 1]] = 1;
    }
}

/* Default ids by the usual spellings, if the file names none */
static void default_ids(struct tok *t)
{
    int32_t *const id[] = { &t->bos, &t->eos, &t->unk };
    static const char *const spelling[] = { "<s>", "</s>", "<unk>" };

    for (int i = 0; i < 3; i++) {
        const int32_t found = cb_tok_lookup(t, spelling[i], strlen(spelling[i]));
        if (*id[i] < 0 && found >= 0 && cb_tok_is_special(t, found))
            *id[i] = found;
    }
}

static int open_spm(struct tok *t, const struct gguf *g)
{
    struct spm *m = cb_calloc(1, sizeof *m);

    if (!m)
        return CB_ENOMEM;
    t->own = m;
    default_ids(t);
    TRY(read_scores(t, m, g));
    TRY(read_bytes(t, m));
    find_joins(t, m);
    t->add_bos = 1;
    t->space_prefix = 1;
    return CB_OK;
}

/* All pieces of text take part in merging, whatever their scores. */
static int open_gemma4(struct tok *t, const struct gguf *g)
{
    struct spm *m = cb_calloc(1, sizeof *m);

    if (!m)
        return CB_ENOMEM;
    t->own = m;
    if (!(m->rank = cb_calloc((size_t)t->n_vocab, sizeof *m->rank)))
        return CB_ENOMEM;
    for (int i = 0; i < t->n_vocab; i++)
        m->rank[i] = t->piece[i].type == TT_NORMAL || t->piece[i].type == TT_UNUSED ? 0 : -1;
    TRY(cb_tok_pairs_read(t, g, &m->pairs));
    TRY(read_bytes(t, m));
    find_joins(t, m);
    t->add_bos = 1;
    return CB_OK;
}

static void close_spm(struct tok *t)
{
    struct spm *m = t->own;

    if (m) {
        free(m->rank);
        cb_tok_pairs_close(&m->pairs);
    }
    free(m);
}

/* ---- encode ---- */

/* The model treats U+2581 and a blank alike, so user-defined tokens of blanks must match both. */
static int prepare_spm(struct tok_work *w, const char **text, size_t *len)
{
    const char *s = *text;
    size_t n = 0, b = 0;

    if (!memmem(s, *len, SPACE, N_SPACE))
        return CB_OK;
    w->prepared = cb_calloc(*len, 1);
    if (!w->prepared)
        return CB_ENOMEM;
    for (size_t i = 0; i < *len; n++) {
        const int space = *len - i >= N_SPACE && memcmp(s + i, SPACE, N_SPACE) == 0;
        while (b < w->n_bound && w->bound[b] <= i)
            w->bound[b++] = n;
        w->prepared[n] = space ? ' ' : s[i];
        i += space ? N_SPACE : 1;
    }
    while (b < w->n_bound)
        w->bound[b++] = n;
    *text = w->prepared;
    *len = n;
    return CB_OK;
}

static int merges(const struct tok *t, const char *word, const struct sym *a, const struct sym *b,
                  uint32_t *rank, int32_t *id)
{
    const struct spm *m = t->own;

    *id = cb_tok_lookup(t, word + a->at, (size_t)a->len + b->len);
    if (*id < 0 || m->rank[*id] < 0)
        return 0;
    *rank = (uint32_t)m->rank[*id];
    return 1;
}

static int listed_merges(const struct tok *t, const char *word, const struct sym *a,
                         const struct sym *b, uint32_t *rank, int32_t *id)
{
    const struct spm *m = t->own;

    (void)word;
    return cb_tok_pairs_find(t, &m->pairs, a->id, b->id, rank, id);
}

static int push_bytes(struct tok_work *w, const char *s, size_t n)
{
    const struct spm *m = w->t->own;

    for (size_t i = 0; i < n; i++)
        if (m->byte_id[(unsigned char)s[i]] < 0)
            return w->n && w->ids[w->n - 1] == w->t->unk ? CB_OK : cb_tok_push(w, w->t->unk);
    for (size_t i = 0; i < n; i++)
        TRY(cb_tok_push(w, m->byte_id[(unsigned char)s[i]]));
    return CB_OK;
}

static int merge_word(struct tok_work *w, const char *s, size_t len)
{
    const struct spm *m = w->t->own;
    size_t n = 0;

    TRY(cb_tok_syms(w, len));
    for (size_t i = 0, k; i < len; i += k) {
        int32_t id;
        k = (size_t)cb_utf8_len(s + i, len - i);
        k += !k; /* an invalid byte is a symbol of its own */
        id = cb_tok_lookup(w->t, s + i, k);
        cb_tok_sym(w, n++, id >= 0 && m->rank[id] >= 0 ? id : -1, i, k);
    }
    TRY(cb_tok_merge(w, s, n, m->pairs.pair ? listed_merges : merges));
    for (int32_t i = 0; i >= 0; i = w->sym[i].next) {
        const struct sym *y = &w->sym[i];
        TRY(y->id >= 0 ? cb_tok_push(w, y->id) : push_bytes(w, s + y->at, y->len));
    }
    return CB_OK;
}

static int word(struct tok_work *w, const char *s, size_t len)
{
    const size_t from = w->n;
    const int seen = cb_tok_cached(w, s, len);

    if (seen)
        return seen < 0 ? seen : CB_OK;
    TRY(merge_word(w, s, len));
    cb_tok_remember(w, s, len, from);
    return CB_OK;
}

/* Writes blanks as U+2581, with one in front -> w->buf, *n bytes */
static int spaced(struct tok_work *w, const char *text, size_t len, size_t *n)
{
    size_t blanks = w->t->space_prefix != 0, k = 0;

    for (size_t i = 0; i < len; i++)
        blanks += text[i] == ' ';
    TRY(cb_grow(&w->buf, &w->cap_buf, len + blanks * N_SPACE, 1));
    if (w->t->space_prefix) {
        memcpy(w->buf, SPACE, N_SPACE);
        k = N_SPACE;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ') {
            memcpy(w->buf + k, SPACE, N_SPACE);
            k += N_SPACE;
        } else {
            w->buf[k++] = text[i];
        }
    }
    *n = k;
    return CB_OK;
}

/* text[n] with blanks written as U+2581 */
static int words(struct tok_work *w, const char *text, size_t n)
{
    const struct spm *m = w->t->own;
    size_t from = 0;
    int after_space = 1; /* 1: a run of spaces is not cut */

    for (size_t i = 0; i < n;) {
        const int space = n - i >= N_SPACE && memcmp(text + i, SPACE, N_SPACE) == 0;
        if (space && !after_space && !m->joins_space[(unsigned char)text[i - 1]]) {
            TRY(word(w, text + from, i - from));
            from = i;
        }
        i += space ? N_SPACE : 1;
        after_space = space;
    }
    return n > from ? word(w, text + from, n - from) : CB_OK;
}

static int encode_spm(struct tok_work *w, const char *text, size_t len)
{
    size_t n;

    TRY(spaced(w, text, len, &n));
    return words(w, w->buf, n);
}

/* Line breaks are words of their own: the piece of as many breaks, if there is one. */
static int encode_gemma4(struct tok_work *w, const char *text, size_t len)
{
    size_t n, from = 0;

    TRY(spaced(w, text, len, &n));
    for (size_t i = 0, end; i < n; i = end) {
        int32_t id;
        for (end = i; end < n && w->buf[end] == '\n';)
            end++;
        if (end == i) {
            end++;
            continue;
        }
        TRY(words(w, w->buf + from, i - from));
        id = cb_tok_lookup(w->t, w->buf + i, end - i);
        TRY(id >= 0 ? cb_tok_push(w, id) : words(w, w->buf + i, end - i));
        from = end;
    }
    return words(w, w->buf + from, n - from);
}

/* ---- decode ---- */

static int piece_spm(const struct tok *t, int32_t id, char *buf, int cap)
{
    const struct piece *p = &t->piece[id];
    const int byte = p->type == TT_BYTE ? byte_of(p) : -1;
    int n = 0;

    if (byte >= 0) {
        if (cap > 0)
            buf[0] = (char)byte;
        return 1;
    }
    for (uint32_t i = 0; i < p->n; n++) {
        const int space = p->n - i >= N_SPACE && memcmp(p->s + i, SPACE, N_SPACE) == 0;
        if (n < cap)
            buf[n] = space ? ' ' : p->s[i];
        i += space ? N_SPACE : 1;
    }
    return n;
}

const struct tok_kind cb_tok_spm = {
    .model = "llama",
    .open = open_spm,
    .close = close_spm,
    .prepare = prepare_spm,
    .encode = encode_spm,
    .piece = piece_spm,
};

const struct tok_kind cb_tok_gemma4 = {
    .model = "gemma4",
    .open = open_gemma4,
    .close = close_spm,
    .prepare = prepare_spm,
    .encode = encode_gemma4,
    .piece = piece_spm,
};
