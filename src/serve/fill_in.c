/* SPDX-License-Identifier: MIT */
/* fill_in.c - prompts that ask for the text between two texts (Bavarian et al. 2022), with the
 * tokens that the file names, or with those of the model families. */
#include "fill_in.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/err.h"
#include "exchange.h"
#include "fields.h"
#include "gguf/gguf.h"
#include "model/model.h"

enum { BEFORE, AFTER, MIDDLE, PROJECT, FILE_MARK, N_MARK };

/* Ids, -1 = none. Without MIDDLE, the text before stands last. */
struct marks_of_file {
    int32_t id[N_MARK];
};

static const char *const keys[N_MARK][2] = {
    [BEFORE] = { "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id" },
    [AFTER] = { "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id" },
    [MIDDLE] = { "tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id" },
    [PROJECT] = { "tokenizer.ggml.fim_rep_token_id", NULL },
    [FILE_MARK] = { "tokenizer.ggml.fim_sep_token_id", NULL },
};

/* "": the family has none */
static const char *const families[][N_MARK] = {
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>",
      "<|file_sep|>" }, /* Qwen Coder */
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "",
      "<|file_separator|>" }, /* CodeGemma */
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>",
      "<file_sep>" },                                                     /* StarCoder 2 */
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "" }, /* StarCoder, Granite */
    { "<fim-prefix>", "<fim-suffix>", "<fim-middle>", "", "" },
    { "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", "" }, /* DeepSeek Coder */
    { "▁<PRE>", "▁<SUF>", "▁<MID>", "", "" },                         /* Code Llama */
    { "<PRE>", "<SUF>", "<MID>", "", "" },
    { "[PREFIX]", "[SUFFIX]", "", "", "" }, /* Codestral */
};

/* Reads the ids that the file names. SERVE_EMODEL: one is no token */
static int read_file(const cb_model *model, struct marks_of_file *out)
{
    for (int i = 0; i < N_MARK; i++) {
        out->id[i] = -1;
        for (int k = 0; k < 2 && keys[i][k] && out->id[i] < 0; k++) {
            int64_t v = -1;
            const int got = cb_gguf_i64(model->gguf, keys[i][k], &v);
            TRY(cb_model_status(got));
            if (got && (v < 0 || v >= cb_n_vocab(model)))
                return cb_fail(SERVE_EMODEL, "%s: %lld is no token", keys[i][k], (long long)v);
            out->id[i] = got ? (int32_t)v : -1;
        }
    }
    return CB_OK;
}

/* The special token of this name, or -1 */
static int32_t special(const cb_model *model, const char *name, int *rc)
{
    int32_t *ids = NULL, id = -1;
    char byte;
    int n = 0;

    if (*rc || !*name)
        return -1;
    *rc = cb_tokenize(model, name, strlen(name), CB_TOK_SPECIAL, &ids, &n);
    if (!*rc && n == 1 && !cb_token_bytes(model, ids[0], 0, &byte, 1))
        id = ids[0];
    free(ids);
    return id;
}

/* The first family whose tokens are all there */
static int find_family(const cb_model *model, struct marks_of_file *out)
{
    int rc = CB_OK;

    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        int missing = 0;
        for (int i = 0; i < N_MARK; i++) {
            out->id[i] = special(model, families[f][i], &rc);
            missing += *families[f][i] && out->id[i] < 0;
        }
        TRY(rc);
        if (!missing)
            return CB_OK;
    }
    return cb_fail(CB_EARG, "suffix: the model has no tokens for filling in the middle");
}

static int find_marks(const cb_model *model, struct marks_of_file *out)
{
    TRY(read_file(model, out));
    return out->id[BEFORE] >= 0 && out->id[AFTER] >= 0 ? CB_OK : find_family(model, out);
}

/* ---- the prompt ---- */

struct prompt {
    const cb_model *model;
    int32_t **ids;
    int *n;
};

/* Appends a token, if it is none of -1, and then a text. */
static int put(const struct prompt *p, int32_t mark, const char *text, int flags)
{
    int32_t *own = NULL;
    int n_own = 0, err;

    TRY(cb_append_i32(p->ids, p->n, &mark, mark >= 0));
    TRY(cb_tokenize(p->model, text, strlen(text), flags, &own, &n_own));
    err = cb_append_i32(p->ids, p->n, own, n_own);
    free(own);
    return err;
}

/* A file's name and text after its mark; without a mark, a line of comment parts it. */
static int put_file(const struct prompt *p, int32_t mark, const char *name, const char *text)
{
    struct buf b = { 0 };
    int rc;

    if (mark >= 0)
        cb_buf_print(&b, "%s\n%s\n", name, text);
    else
        cb_buf_print(&b, "%s\n\n--- snippet ---\n\n", text);
    rc = b.failed ? cb_fail(CB_ENOMEM, "out of memory") : put(p, mark, b.s, 0);
    cb_buf_free(&b);
    return rc;
}

static int put_files(const struct prompt *p, const struct marks_of_file *m, const json_t *files)
{
    const json_t *f;
    size_t i;

    if (!json_array_size(files))
        return CB_OK;
    if (m->id[PROJECT] >= 0)
        TRY(put(p, m->id[PROJECT], "project\n", 0));
    json_array_foreach(files, i, f)
    {
        const char *text = NULL, *name = "file";
        TRY(cb_field_text(f, "filename", &name));
        TRY(cb_field_text(f, "text", &text));
        if (!text)
            return cb_fail(CB_EARG, "input_extra: [%zu] must have a text", i);
        TRY(put_file(p, m->id[FILE_MARK], name, text));
    }
    return m->id[FILE_MARK] >= 0 ? put(p, m->id[FILE_MARK], "current\n", 0) : CB_OK;
}

int cb_fill_in(const cb_model *model, const struct fill_in *what, int32_t **ids, int *n)
{
    const struct prompt p = { model, ids, n };
    struct marks_of_file m;

    *ids = NULL;
    *n = 0;
    TRY(find_marks(model, &m));
    TRY(put(&p, -1, "", CB_TOK_BOS));
    TRY(put_files(&p, &m, what->files));
    if (m.id[MIDDLE] < 0) {
        TRY(put(&p, m.id[AFTER], what->after, 0));
        return put(&p, m.id[BEFORE], what->before, 0);
    }
    TRY(put(&p, m.id[BEFORE], what->before, 0));
    TRY(put(&p, m.id[AFTER], what->after, 0));
    return put(&p, m.id[MIDDLE], "", 0);
}
