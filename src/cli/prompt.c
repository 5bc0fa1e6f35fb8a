/* SPDX-License-Identifier: MIT */
/* prompt.c - turns the user's prompt into token ids; chat templates. */
#include "prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int cb_chat_form_of(const struct opts *o, const struct engine *e, const char **form)
{
    char *text;

    *form = cb_opt_text(o, ARG_CHAT_TEMPLATE);
    TRY(cb_chat_text(e->model, *form, NULL, 0, 0, &text));
    free(text);
    return CB_OK;
}

static int chat_prompt(const struct opts *o, const struct engine *e, int32_t **ids, int *n)
{
    const char *system = cb_opt_text(o, ARG_SYSTEM);
    const char *form;
    struct buf user;
    int rc;

    TRY(cb_chat_form_of(o, e, &form));
    TRY(cb_read_prompt(o, "\n\n", &user)); /* a document and a question: two paragraphs */
    if (strlen(user.s) != user.n) {
        rc = cb_fail(CB_EARG, "prompt: has a NUL byte, which a chat template cannot carry");
    } else {
        const struct cb_message msg[] = { { "system", system }, { "user", user.s } };
        rc = cb_chat_tokenize(e->model, form, system ? msg : msg + 1, system ? 2 : 1, 1, 0, ids, n);
    }
    cb_buf_free(&user);
    return rc;
}

/* An empty prompt becomes BOS if the model has one. */
static int from_nothing(const struct engine *e, int32_t **ids, int *n)
{
    if (e->info.bos < 0)
        return cb_fail(CB_EARG, "prompt: empty, and the model has no BOS token to begin with");
    free(*ids);
    *ids = cb_calloc(1, sizeof **ids);
    if (!*ids)
        return CB_ENOMEM;
    (*ids)[0] = e->info.bos;
    *n = 1;
    return CB_OK;
}

int cb_prompt_ids(const struct opts *o, const struct engine *e, int32_t **ids, int *n)
{
    struct buf in;
    int rc;

    *ids = NULL;
    if (cb_opt_flag(o, ARG_CHAT))
        return chat_prompt(o, e, ids, n);
    TRY(cb_read_prompt(o, "", &in));
    rc = cb_tokenize(e->model, in.s, in.n, CB_TOK_BOS | CB_TOK_SPECIAL, ids, n);
    cb_buf_free(&in);
    if (!rc && *n == 0 && !cb_opt_set(o, ARG_BANK)) /* a bank is something to go on from */
        rc = from_nothing(e, ids, n);
    return rc;
}
