/* SPDX-License-Identifier: MIT */
/* tokenize.c - ctxbank tokenize: text to token ids and back; opens only the model's vocabulary. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cmd.h"

static int piece(const cb_model *m, int32_t id, int special, struct buf *out)
{
    char small[64], *big;
    const int n = cb_token_bytes(m, id, special, small, sizeof small);
    int rc;

    cb_buf_clear(out);
    if (n <= (int)sizeof small)
        return cb_buf_put(out, small, (size_t)n);
    big = cb_calloc((size_t)n, 1);
    if (!big)
        return CB_ENOMEM;
    cb_token_bytes(m, id, special, big, n);
    rc = cb_buf_put(out, big, (size_t)n);
    free(big);
    return rc;
}

static void print_quoted(const struct buf *t)
{
    putchar('"');
    for (size_t i = 0; i < t->n; i++) {
        const unsigned char c = (unsigned char)t->s[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\t')
            fputs("\\t", stdout);
        else if (c < 32 || c >= 127)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    fputs("\"\n", stdout);
}

static int print_pieces(const cb_model *m, const int32_t *ids, int n)
{
    struct buf p = { 0 };
    int rc = CB_OK;

    for (int i = 0; i < n && !rc; i++) {
        rc = piece(m, ids[i], 1, &p);
        if (!rc) {
            printf("%d ", ids[i]);
            print_quoted(&p);
        }
    }
    cb_buf_free(&p);
    return rc;
}

static int print_json(const cb_model *m, const int32_t *ids, int n)
{
    json_t *id = json_array(), *pieces = json_array();
    struct buf p = { 0 };
    int rc = CB_OK;

    for (int i = 0; i < n && !rc; i++) {
        rc = piece(m, ids[i], 1, &p);
        if (rc)
            break;
        cb_json_add(&id, json_integer(ids[i]));
        cb_json_add(&pieces, cb_json_text(p.s, p.n));
    }
    cb_buf_free(&p);
    if (!rc)
        return cb_json_print(
            json_pack("{s:i, s:o, s:o}", "n_tokens", n, "ids", id, "pieces", pieces));
    json_decref(id);
    json_decref(pieces);
    return rc;
}

static int encode(const struct opts *o, const cb_model *m, const struct buf *in)
{
    const int flags = (cb_opt_flag(o, ARG_NO_BOS) ? 0 : CB_TOK_BOS) |
                      (cb_opt_flag(o, ARG_SPECIAL) ? CB_TOK_SPECIAL : 0);
    int32_t *ids;
    int n, rc = CB_OK;

    TRY(cb_tokenize(m, in->s, in->n, flags, &ids, &n));
    if (cb_opt_flag(o, ARG_JSON)) {
        rc = print_json(m, ids, n);
    } else if (cb_opt_flag(o, ARG_PIECES)) {
        rc = print_pieces(m, ids, n);
    } else {
        for (int i = 0; i < n; i++)
            printf(i ? " %d" : "%d", ids[i]);
        putchar('\n');
    }
    free(ids);
    return rc;
}

/* Ids separated by blanks, commas or brackets (so JSON lists work too) -> their text */
static int decode_to(const struct opts *o, const cb_model *m, const char *s, struct buf *out)
{
    struct cb_model_info info;
    struct buf p = { 0 };
    int rc = cb_buf_put(out, "", 0);

    cb_model_get_info(m, &info);
    while (!rc && *(s += strspn(s, " \t\r\n,[]"))) {
        const int len = (int)strcspn(s, " \t\r\n,[]");
        char *end;
        long id;
        errno = 0;
        id = strtol(s, &end, 10);
        if (end != s + len || errno || id < 0 || id >= info.n_vocab)
            rc = cb_usage("token ids: '%.*s' is not a whole number below %d", len, s, info.n_vocab);
        if (!rc)
            rc = piece(m, (int32_t)id, cb_opt_flag(o, ARG_SPECIAL), &p);
        if (!rc)
            rc = cb_buf_put(out, p.s, p.n);
        s += len;
    }
    cb_buf_free(&p);
    return rc;
}

static int decode(const struct opts *o, const cb_model *m, const struct buf *in)
{
    struct cb_model_info info;
    struct buf text = { 0 };
    int rc = decode_to(o, m, in->s, &text);
    size_t skip; /* the space that encoding put in front */

    cb_model_get_info(m, &info);
    skip = !rc && info.space_prefix && text.n && *text.s == ' ';

    if (!rc && cb_opt_flag(o, ARG_JSON))
        rc = cb_json_print(json_pack("{s:o}", "text", cb_json_text(text.s + skip, text.n - skip)));
    else if (!rc)
        rc = cb_out_text(text.s + skip, text.n - skip);
    cb_buf_free(&text);
    return rc;
}

static int run(const struct opts *o)
{
    const char *path = cb_need_model(o);
    const struct cb_model_params p = { .vocab_only = 1,
                                       .pre_tokenizer = cb_opt_text(o, ARG_PRE_TOKENIZER) };
    cb_model *m = NULL;
    struct buf in;
    int rc;

    if (!path)
        return CB_USAGE;
    TRY(cb_read_prompt(o, "", &in));
    cb_bus_error_catch(path);
    rc = cb_model_open(path, &p, &m);
    if (!rc)
        rc = cb_opt_flag(o, ARG_DECODE) ? decode(o, m, &in) : encode(o, m, &in);
    cb_model_close(m);
    cb_buf_free(&in);
    return rc;
}

const struct cmd cb_cmd_tokenize = {
    .name = "tokenize",
    .operands = "",
    .example = "-m model.gguf -p \"How many tokens?\"",
    .brief = "turn text into token ids and back",
    .sets = SET_OWN_TOKENIZE | SET_PROMPT | SET_MODEL | SET_JSON | SET_GENERAL,
    .run = run,
};
