/* SPDX-License-Identifier: MIT */
/* tiny.c - small random models of every supported family. */
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES                                                                                      \
    .n_layer = 2, .n_embd = 256, .n_head = 4, .n_kv = 2, .hd = 64, .n_ff = 512, .n_ctx = 2048

const struct tiny cb_tiny[] = {
    { .name = "llama", .arch = "llama", SIZES, .rope_base = 10000, .seed = 1 },
    { .name = "llama3", .arch = "llama", .pre = "llama-bpe", SIZES, .rope_base = 5e5f, .seed = 2 },
    { .name = "llama3.1",
      .arch = "llama",
      .pre = "llama-bpe",
      SIZES,
      .rope_base = 5e5f,
      .rope_factors = 1,
      .seed = 3 },
    { .name = "mistral", .arch = "llama", SIZES, .rope_base = 10000, .window = 16, .seed = 4 },
    { .name = "yi", .arch = "llama", SIZES, .rope_base = 5e6f, .seed = 5 },
    { .name = "smollm",
      .arch = "llama",
      .pre = "smollm",
      SIZES,
      .rope_base = 10000,
      .tied = 1,
      .seed = 6 },
    { .name = "linear", .arch = "llama", SIZES, .rope_base = 10000, .rope_linear = 4, .seed = 7 },
    { .name = "qwen2",
      .arch = "qwen2",
      .pre = "qwen2",
      SIZES,
      .rope_base = 1e6f,
      .bias = 1,
      .seed = 8 },
    { .name = "qwen2tied",
      .arch = "qwen2",
      .pre = "qwen2",
      SIZES,
      .rope_base = 1e6f,
      .bias = 1,
      .tied = 1,
      .seed = 9 },
    { .name = NULL },
};

struct tiny cb_tiny_get(const char *name)
{
    for (const struct tiny *t = cb_tiny; t->name; t++)
        if (!strcmp(t->name, name))
            return *t;
    fprintf(stderr, "no tiny model '%s'\n", name);
    abort();
}

struct tiny cb_tiny_small(const char *name)
{
    struct tiny t = cb_tiny_get(name);

    t.n_embd = 64;
    t.hd = 16;
    t.n_ff = 96;
    t.n_ctx = 512;
    return t;
}

/* ---- vocabulary ---- */

/* Merges in order of rank, with '_' for a space; each half is a letter or an earlier merge. */
static const char *const merges[] = {
    "_ t",  "h e", "_t he", "i n", "r e",  "o n",  "e r",    "_ a",  "n d",   "_a nd",
    "_ s",  "a t", "o r",   "_ o", "_o f", "i s",  "i t",    "in g", "e s",   "e n",
    "l l",  "l o", "_ w",   "o u", "h a",  "ha t", "_t hat", "_ h",  "e d",   "_ in",
    "_ is", "_ b", "_b e",  "u s", "er s", "_ c",  "a l",    "_ f",  "_f or", "l e",
    "o m",  "_ d", "c t",   "_ m", "v e",  "_h e", "u n",    "a r",  "s t",   "_t o",
};
enum { N_MERGE = sizeof merges / sizeof *merges, MAX_VOCAB = 256 + N_MERGE + 8, PIECE = 32 };
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };

struct vocab {
    char piece[MAX_VOCAB][PIECE];
    char merge[N_MERGE][PIECE];
    float score[MAX_VOCAB];
    int32_t type[MAX_VOCAB];
    int n;
};

static void add(struct vocab *v, const char *piece, int type, float score)
{
    snprintf(v->piece[v->n], PIECE, "%s", piece);
    v->type[v->n] = type;
    v->score[v->n++] = score;
}

/* Copies `from` with '_' replaced by `space`; keep_blank: the blank between a merge's halves stays.
 */
static void spell(const char *from, const char *space, int keep_blank, char out[PIECE])
{
    size_t n = 0;

    for (; *from && n + 4 < PIECE; from++) {
        if (*from == '_')
            n += (size_t)snprintf(out + n, PIECE - n, "%s", space);
        else if (*from != ' ' || keep_blank)
            out[n++] = *from;
    }
    out[n] = 0;
}

/* The letter for byte b in byte-level BPE: itself if printable, else the next from U+0100 on. */
static void byte_letter(int b, char out[PIECE])
{
    int cp = 256;

    for (int i = 0; i <= b; i++) {
        const int prints = (i > 32 && i < 127) || (i > 160 && i != 173);
        if (i == b && prints)
            cp = b;
        else if (i < b && !prints)
            cp++;
    }
    if (cp < 128)
        snprintf(out, PIECE, "%c", cp);
    else
        snprintf(out, PIECE, "%c%c", 0xc0 | cp >> 6, 0x80 | (cp & 63));
}

static void bpe_vocab(struct vocab *v)
{
    static const char *const special[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    char s[PIECE];

    for (int b = 0; b < 256; b++) {
        byte_letter(b, s);
        add(v, s, NORMAL, 0);
    }
    for (int i = 0; i < N_MERGE; i++) {
        spell(merges[i], "\xc4\xa0", 1, v->merge[i]);
        spell(merges[i], "\xc4\xa0", 0, s);
        add(v, s, NORMAL, 0);
    }
    for (int i = 0; i < 3; i++)
        add(v, special[i], CONTROL, 0);
}

static void spm_vocab(struct vocab *v)
{
    char s[PIECE];

    add(v, "<unk>", UNKNOWN, 0);
    add(v, "<s>", CONTROL, 0);
    add(v, "</s>", CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        snprintf(s, PIECE, "<0x%02X>", (unsigned)b);
        add(v, s, BYTE, 0);
    }
    for (int i = 0; i < N_MERGE; i++) {
        spell(merges[i], "\xe2\x96\x81", 0, s);
        add(v, s, NORMAL, (float)-i);
    }
    add(v, "\xe2\x96\x81", NORMAL, -1000);
}

static void put_pieces(struct gguf_make *m, const char *key, char (*piece)[PIECE], int n)
{
    const char *s[MAX_VOCAB];

    for (int i = 0; i < n; i++)
        s[i] = piece[i];
    cb_make_strings(m, key, s, n);
}

int cb_tiny_put_vocab(const struct tiny *t, struct gguf_make *m)
{
    struct vocab v = { .n = 0 };
    struct gguf_writer *w = &m->w;

    if (t->pre)
        bpe_vocab(&v);
    else
        spm_vocab(&v);
    cb_gguf_put_string(w, "tokenizer.ggml.model", t->pre ? "gpt2" : "llama");
    if (t->pre)
        cb_gguf_put_string(w, "tokenizer.ggml.pre", t->pre);
    put_pieces(m, "tokenizer.ggml.tokens", v.piece, v.n);
    cb_gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v.type, (uint64_t)v.n);
    if (t->pre) {
        put_pieces(m, "tokenizer.ggml.merges", v.merge, N_MERGE);
        cb_gguf_put_string(
            w, "tokenizer.chat_template",
            "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
            "message['content'] + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    } else {
        cb_gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, v.score, (uint64_t)v.n);
        cb_gguf_put_i64(w, "tokenizer.ggml.unknown_token_id", GGUF_U32, 0);
    }
    cb_gguf_put_i64(w, "tokenizer.ggml.bos_token_id", GGUF_U32, t->pre ? v.n - 3 : 1);
    cb_gguf_put_i64(w, "tokenizer.ggml.eos_token_id", GGUF_U32, t->pre ? v.n - 1 : 2);
    cb_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", !t->pre || !strcmp(t->pre, "llama-bpe"));
    return v.n;
}

/* ---- hyper-parameters ---- */

static const char *key_of(const struct tiny *t, const char *name, char (*buf)[64])
{
    snprintf(*buf, sizeof *buf, "%s.%s", t->arch, name);
    return *buf;
}

static void put_hparams(const struct tiny *t, struct gguf_make *m)
{
    struct gguf_writer *w = &m->w;
    const struct {
        const char *name;
        int v;
    } ints[] = {
        { "block_count", t->n_layer },
        { "context_length", t->n_ctx },
        { "embedding_length", t->n_embd },
        { "feed_forward_length", t->n_ff },
        { "attention.head_count", t->n_head },
        { "attention.head_count_kv", t->n_kv },
        { "rope.dimension_count", t->hd },
        { "attention.sliding_window", t->window },
        { "attention.shared_kv_layers", t->shared_kv },
    };
    char b[64];

    cb_gguf_put_string(w, "general.architecture", t->arch);
    cb_gguf_put_string(w, "general.name", t->name);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (ints[i].v)
            cb_gguf_put_i64(w, key_of(t, ints[i].name, &b), GGUF_U32, ints[i].v);
    if (t->hd * t->n_head != t->n_embd) {
        cb_gguf_put_i64(w, key_of(t, "attention.key_length", &b), GGUF_U32, t->hd);
        cb_gguf_put_i64(w, key_of(t, "attention.value_length", &b), GGUF_U32, t->hd);
    }
    cb_gguf_put_f32(w, key_of(t, "attention.layer_norm_rms_epsilon", &b), 1e-5f);
    cb_gguf_put_f32(w, key_of(t, "rope.freq_base", &b), t->rope_base);
    if (t->rope_linear > 0) {
        cb_gguf_put_string(w, key_of(t, "rope.scaling.type", &b), "linear");
        cb_gguf_put_f32(w, key_of(t, "rope.scaling.factor", &b), t->rope_linear);
    }
}

/* ---- tensors ---- */

/* Puts a tensor of normal numbers around `mean`; d1 0 = a vector, always f32. */
static void put_random(const struct tiny *t, struct gguf_make *m, uint64_t *rng, const char *name,
                       int d0, int d1, float mean, float deviation)
{
    const int64_t dim[2] = { d0, d1 };
    const size_t n = (size_t)d0 * (size_t)(d1 ? d1 : 1);
    float *x = calloc(n, sizeof *x);

    if (!x)
        abort();
    for (size_t i = 0; i < n; i++)
        x[i] = mean + deviation * cb_rand_normal(rng);
    cb_make_tensor(m, name, d1 ? t->type : DT_F32, d1 ? 2 : 1, dim, x);
    free(x);
}

/* Puts a matrix, scaled so that activations keep their size; a gain above 1 sharpens attention. */
static void put_matrix(const struct tiny *t, struct gguf_make *m, uint64_t *rng, const char *name,
                       int n_in, int n_out, float gain)
{
    put_random(t, m, rng, name, n_in, n_out, 0, gain / sqrtf((float)n_in));
}

static const char *in_layer(int l, const char *name, char (*buf)[64])
{
    snprintf(*buf, sizeof *buf, "blk.%d.%s", l, name);
    return *buf;
}

static void put_layer(const struct tiny *t, struct gguf_make *m, uint64_t *rng, int l)
{
    const int nq = t->n_head * t->hd, nkv = t->n_kv * t->hd;
    const int own = l < t->n_layer - t->shared_kv; /* keys and values */
    char b[64];

    put_random(t, m, rng, in_layer(l, "attn_norm.weight", &b), t->n_embd, 0, 1, 0.1f);
    put_matrix(t, m, rng, in_layer(l, "attn_q.weight", &b), t->n_embd, nq, 1.5f);
    if (own) {
        put_matrix(t, m, rng, in_layer(l, "attn_k.weight", &b), t->n_embd, nkv, 1.5f);
        put_matrix(t, m, rng, in_layer(l, "attn_v.weight", &b), t->n_embd, nkv, 1);
    }
    put_matrix(t, m, rng, in_layer(l, "attn_output.weight", &b), nq, t->n_embd, 1);
    if (t->bias)
        put_random(t, m, rng, in_layer(l, "attn_q.bias", &b), nq, 0, 0, 0.5f);
    if (t->bias && own) {
        put_random(t, m, rng, in_layer(l, "attn_k.bias", &b), nkv, 0, 0, 0.5f);
        put_random(t, m, rng, in_layer(l, "attn_v.bias", &b), nkv, 0, 0, 0.5f);
    }
    put_random(t, m, rng, in_layer(l, "ffn_norm.weight", &b), t->n_embd, 0, 1, 0.1f);
    put_matrix(t, m, rng, in_layer(l, "ffn_gate.weight", &b), t->n_embd, t->n_ff, 1);
    put_matrix(t, m, rng, in_layer(l, "ffn_up.weight", &b), t->n_embd, t->n_ff, 1);
    put_matrix(t, m, rng, in_layer(l, "ffn_down.weight", &b), t->n_ff, t->n_embd, 1);
}

/* Divisors of the rotation frequencies as llama 3.1 has them: 1 for the fast ones, 8 for the slow,
 * a ramp between. */
static void put_rope_factors(const struct tiny *t, struct gguf_make *m)
{
    const int64_t n = t->hd / 2;
    float f[256];

    for (int i = 0; i < n; i++) {
        const float at = (float)i / (float)n;
        f[i] = at < 0.4f ? 1 : at > 0.7f ? 8 : 1 + 7 * (at - 0.4f) / 0.3f;
    }
    cb_make_tensor(m, "rope_freqs.weight", DT_F32, 1, &n, f);
}

void cb_tiny_make(const struct tiny *t, struct gguf_make *m)
{
    uint64_t rng = t->seed;
    int n_vocab;

    cb_make_init(m);
    put_hparams(t, m);
    n_vocab = cb_tiny_put_vocab(t, m);
    if (t->n_vocab)
        n_vocab = t->n_vocab;
    /* a tied matrix must not make the logits huge */
    put_matrix(t, m, &rng, "token_embd.weight", t->n_embd, n_vocab,
               t->tied ? 2 : sqrtf((float)t->n_embd));
    put_random(t, m, &rng, "output_norm.weight", t->n_embd, 0, 1, 0.1f);
    if (!t->tied)
        put_matrix(t, m, &rng, "output.weight", t->n_embd, n_vocab, 2);
    if (t->rope_factors)
        put_rope_factors(t, m);
    for (int l = 0; l < t->n_layer; l++)
        put_layer(t, m, &rng, l);
}

void cb_tiny_save(const struct tiny *t, const char *path)
{
    struct gguf_make m;

    cb_tiny_make(t, &m);
    cb_make_save(&m, path);
}
