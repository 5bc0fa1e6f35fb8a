/* SPDX-License-Identifier: MIT */
/* embed.c - ctxbank embed: texts to embeddings. */
#include "base/array.h"
#include "engine/embedding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "cli/cmd.h"
#include "cli/output/log.h"

struct text {
    int32_t *ids;
    int n;
};

struct work {
    const struct opts *o;
    struct engine e;
    struct text *text; /* [n] */
    int n;
    struct cb_embedding how;
    float *out;   /* [n_embd] */
    json_t *list; /* of --output json */
};

/* ---- the texts ---- */

static int add_text(struct work *w, const char *s, size_t len)
{
    struct text *t;

    TRY(cb_grow_by_one(&w->text, w->n, sizeof *w->text));
    t = &w->text[w->n];
    *t = (struct text){ 0 };
    TRY(cb_tokenize(w->e.model, s, len, CB_TOK_BOS | CB_TOK_EOS | CB_TOK_SPECIAL, &t->ids, &t->n));
    w->n++;
    return t->n ? CB_OK : cb_fail(CB_EARG, "text %d: is empty", w->n);
}

/* A text, or each of its lines; empty lines are left out. */
static int add_texts(struct work *w, const struct buf *b)
{
    const char *s = b->s ? b->s : "", *end = s + b->n;

    if (!cb_opt_flag(w->o, ARG_LINES))
        return add_text(w, s, b->n);
    while (s < end) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        const size_t len = (size_t)((stop ? stop : end) - s);
        if (len)
            TRY(add_text(w, s, len));
        s += len + 1;
    }
    return CB_OK;
}

/* Each -p and each -f is a text. */
static int read_texts(struct work *w)
{
    for (int i = 0; i < w->o->n_given; i++) {
        const struct given *g = &w->o->given[i];
        struct buf b = { 0 };
        int rc;
        if (g->id != ARG_PROMPT && g->id != ARG_FILE)
            continue;
        rc = cb_read_piece(w->o, g, &b);
        if (!rc && g->id == ARG_FILE && b.n && b.s[b.n - 1] == '\n')
            b.n--;
        if (!rc)
            rc = add_texts(w, &b);
        cb_buf_free(&b);
        TRY(rc);
    }
    return w->n ? CB_OK
                : cb_usage("texts: none given; use -p TEXT or -f FILE (- is standard input)");
}

/* ---- the output ---- */

static json_t *as_json(const struct work *w, int i)
{
    json_t *x = json_array();

    for (int j = 0; j < w->e.info.n_embd; j++)
        cb_json_add(&x, cb_json_real((double)w->out[j]));
    return json_pack("{s:i, s:i, s:o}", "index", i, "tokens", w->text[i].n, "embedding", x);
}

static int print_jsonl(const struct work *w, int i)
{
    json_t *j = as_json(w, i);
    int rc = j ? CB_OK : cb_json_fail("embedding");

    if (j && (json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) || putchar('\n') == EOF))
        rc = CB_EIO;
    json_decref(j);
    return rc;
}

static void print_line(const struct work *w, int i, int csv)
{
    if (csv)
        printf("%d,%d,", i, w->text[i].n);
    for (int j = 0; j < w->e.info.n_embd; j++)
        printf("%s%.9g", !j ? "" : csv ? "," : " ", (double)w->out[j]);
    putchar('\n');
}

static int put(struct work *w, int i)
{
    const char *format = cb_opt_flag(w->o, ARG_JSON) ? "json" : cb_opt_text(w->o, ARG_EMBED_FORMAT);

    if (!strcmp(format, "json")) {
        cb_json_add(&w->list, as_json(w, i));
        return CB_OK;
    }
    if (!strcmp(format, "jsonl"))
        TRY(print_jsonl(w, i));
    else
        print_line(w, i, !strcmp(format, "csv"));
    return cb_out_flush();
}

static void begin_output(struct work *w)
{
    w->list = json_array();
    if (cb_opt_flag(w->o, ARG_JSON) || !cb_opt_is(w->o, ARG_EMBED_FORMAT, "csv"))
        return;
    printf("index,tokens");
    for (int j = 0; j < w->e.info.n_embd; j++)
        printf(",e%d", j);
    putchar('\n');
}

static int end_output(struct work *w)
{
    static const char *const name[] = { "last", "mean", "cls", "last" };
    json_t *list = w->list;

    w->list = NULL;
    if (!cb_opt_flag(w->o, ARG_JSON) && !cb_opt_is(w->o, ARG_EMBED_FORMAT, "json")) {
        json_decref(list);
        return CB_OK;
    }
    return cb_json_print(
        json_pack("{s:o, s:s, s:b, s:i, s:o}", "model", cb_json_str(w->e.path), "pooling",
                  name[w->how.pooling ? w->how.pooling : w->e.info.pooling], "normalized",
                  w->how.normalize, "n_embd", w->e.info.n_embd, "data", list));
}

/* ---- the work ---- */

static int embed(struct work *w, const struct text *t)
{
    struct cb_prefill read;
    struct embedding x;
    int rc = cb_embedding_begin(&x, w->e.model, &w->how);

    if (!rc) {
        cb_session_clear(w->e.session);
        read = cb_embedding_prefill(&x);
        rc = cb_prefill_bar(&w->e, w->o, "text", t->ids, t->n, &read);
    }
    if (!rc)
        cb_embedding_end(&x, w->out);
    cb_embedding_free(&x);
    return rc;
}

static int embed_all(struct work *w)
{
    int longest = 1, n_ctx = cb_opt_int(w->o, ARG_CTX);

    for (int i = 0; i < w->n; i++)
        longest = max_int(longest, w->text[i].n);
    if (longest > w->e.info.n_ctx_train)
        cb_log_note("a text of %d tokens is longer than the %d that the model was trained for",
                    longest, w->e.info.n_ctx_train);
    TRY(cb_engine_session(w->o, &w->e, w->e.info.policy, n_ctx ? n_ctx : longest));
    w->out = cb_calloc((size_t)w->e.info.n_embd, sizeof *w->out);
    if (!w->out)
        return CB_ENOMEM;
    begin_output(w);
    cb_interrupt_catch();
    for (int i = 0; i < w->n; i++) {
        TRY(embed(w, &w->text[i]));
        TRY(put(w, i));
    }
    return end_output(w);
}

enum cb_pooling cb_pooling_of(const struct opts *o)
{
    const char *name = cb_opt_text(o, ARG_POOLING);

    return !name                   ? CB_POOL_MODEL
           : !strcmp(name, "mean") ? CB_POOL_MEAN
           : !strcmp(name, "cls")  ? CB_POOL_CLS
                                   : CB_POOL_LAST;
}

static int run(const struct opts *o)
{
    struct work w = { .o = o, .how = { cb_pooling_of(o), !cb_opt_is(o, ARG_NORMALIZE, "-1") } };
    int rc = cb_engine_open(o, &w.e);

    if (!rc)
        rc = read_texts(&w);
    if (!rc)
        rc = embed_all(&w);
    for (int i = 0; i < w.n; i++)
        free(w.text[i].ids);
    free(w.text);
    free(w.out);
    json_decref(w.list);
    cb_engine_close(&w.e);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_embed = {
    .name = "embed",
    .operands = "",
    .example = "-m model.gguf --lines -f sentences.txt -o jsonl",
    .brief = "turn texts into embeddings",
    .sets = SET_OWN_EMBED | SET_PROMPT | SET_MODEL | SET_ENGINE | SET_THREADS | SET_CTX | SET_JSON |
            SET_PROGRESS | SET_GENERAL,
    .run = run,
};
