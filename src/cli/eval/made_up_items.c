/* SPDX-License-Identifier: MIT */
/* made_up_items.c - tasks that are made up: their lengths, their seed, the text around them. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "eval/data.h"
#include "task_run.h"

/* Tokens that the chat template adds to a prompt. */
static int chat_tokens(struct tasks *t, int *n)
{
    static const char word[] = "word";
    const struct cb_message msg = { "user", word };
    const struct cb_chat how = { .form = t->run.form };
    char *text;

    *n = t->e.info.add_bos ? 1 : 0;
    if (t->run.chat != CHAT_ALWAYS || !t->run.form)
        return CB_OK;
    TRY(cb_chat_text(t->e.model, &how, &msg, 1, 1, &text));
    *n += cb_task_tokens(t, text, strlen(text)); /* markers count as plain text: never too few */
    free(text);
    return *n < 0 ? *n : CB_OK;
}

int cb_made_up_ints(const struct opts *o, enum opt_id id, int **out, int *n)
{
    const int64_t *list = cb_opt_ints(o, id, n);

    *out = cb_calloc((size_t)*n + 1, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    for (int i = 0; i < *n; i++)
        (*out)[i] = (int)list[i];
    return CB_OK;
}

int cb_made_up(struct tasks *t, struct made_up *m)
{
    struct gen *g = &m->g;

    *m = (struct made_up){ .g = { .seed = (uint64_t)cb_opt_int64(t->o, ARG_TASK_SEED),
                                  .n_needle = 1,
                                  .items =
                                      cb_opt_set(t->o, ARG_ITEMS) ? cb_opt_int(t->o, ARG_ITEMS) : 5,
                                  .count = cb_task_tokens,
                                  .arg = t } };
    TRY(cb_made_up_ints(t->o, ARG_LENGTH, &m->length, &g->n_length));
    g->length = m->length;
    return chat_tokens(t, &g->reserve);
}

void cb_made_up_free(struct made_up *m)
{
    free(m->length);
    free(m->depth);
}

static int read_haystack(const struct opts *o, struct haystack *h)
{
    char path[PATH_MAX];
    const char *given = cb_opt_text(o, ARG_HAYSTACK);

    if (given)
        return cb_haystack_read(given, h);
    if (cb_data_find("blue-carbuncle.txt", path, sizeof path))
        return cb_fail(CB_EIO, "haystack: the text that comes with the program was not found; give "
                               "one with --haystack FILE");
    return cb_haystack_read(path, h);
}

int cb_made_up_haystack(struct tasks *t, struct made_up *m)
{
    m->g.haystack = &t->hay;
    return read_haystack(t->o, &t->hay);
}
