/* SPDX-License-Identifier: MIT */
/* fill_in.c - prompts that ask for the text between two texts (Bavarian et al. 2022), with the
 * tokens of the model families. */
#include "fill_in.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const struct {
    const char *before, *after, *middle; /* middle "": the text before stands last */
} forms[] = {
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>" }, /* Qwen Coder, CodeGemma */
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>" },       /* StarCoder, Granite */
    { "<fim-prefix>", "<fim-suffix>", "<fim-middle>" },
    { "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>" }, /* DeepSeek Coder */
    { "▁<PRE>", "▁<SUF>", "▁<MID>" },                         /* Code Llama */
    { "<PRE>", "<SUF>", "<MID>" },
    { "[PREFIX]", "[SUFFIX]", "" }, /* Codestral */
};

/* 1: the name is one special token -> *id */
static int special(const cb_model *model, const char *name, int32_t *id, int *rc)
{
    int32_t *ids = NULL;
    char byte;
    int n = 0, ok;

    if (!*rc)
        *rc = cb_tokenize(model, name, strlen(name), CB_TOK_SPECIAL, &ids, &n);
    ok = !*rc && n == 1 && !cb_token_bytes(model, ids[0], 0, &byte, 1);
    if (ok)
        *id = ids[0];
    free(ids);
    return ok;
}

/* Appends a token, if it is none of -1, and then a text. */
static int put(const cb_model *model, int32_t mark, const char *text, int flags, int32_t **ids,
               int *n)
{
    int32_t *own = NULL, *all;
    int n_own = 0;

    TRY(cb_tokenize(model, text, strlen(text), flags, &own, &n_own));
    all = cb_realloc(*ids, (size_t)(*n + n_own) + 1, sizeof *all);
    if (all) {
        if (mark >= 0)
            all[(*n)++] = mark;
        memcpy(all + *n, own, (size_t)n_own * sizeof *own);
        *n += n_own;
        *ids = all;
    }
    free(own);
    return all ? CB_OK : CB_ENOMEM;
}

static int fill(const cb_model *model, const int32_t mark[3], const char *before, const char *after,
                int32_t **ids, int *n)
{
    TRY(put(model, -1, "", CB_TOK_BOS, ids, n));
    if (mark[2] < 0) {
        TRY(put(model, mark[1], after, 0, ids, n));
        return put(model, mark[0], before, 0, ids, n);
    }
    TRY(put(model, mark[0], before, 0, ids, n));
    TRY(put(model, mark[1], after, 0, ids, n));
    return put(model, mark[2], "", 0, ids, n);
}

int cb_fill_in(const cb_model *model, const char *before, const char *after, int32_t **ids, int *n)
{
    int32_t mark[3];
    int rc = CB_OK;

    *ids = NULL;
    *n = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !rc; i++) {
        mark[2] = -1;
        if (special(model, forms[i].before, &mark[0], &rc) &&
            special(model, forms[i].after, &mark[1], &rc) &&
            (!*forms[i].middle || special(model, forms[i].middle, &mark[2], &rc)))
            return fill(model, mark, before, after, ids, n);
    }
    return rc ? rc : cb_fail(CB_EARG, "suffix: the model has no tokens for filling in the middle");
}
