/* SPDX-License-Identifier: MIT */
/* prompt.c - what the user gave, as the model's token ids; chat templates. */
#include "prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/model.h"

int cb_chat_text(const struct engine *e, const struct chat_form *form, const struct chat_msg *msg,
                 int n_msg, char **text, int *has_bos)
{
    return cb_chat_render(e->model->gguf, form, msg, n_msg, 1, text, has_bos);
}

static int chat_ids(const struct engine *e, const struct chat_form *form,
                    const struct chat_msg *msg, int n_msg, int32_t **ids, int *n)
{
    char *text;
    int has_bos, rc;

    TRY(cb_chat_text(e, form, msg, n_msg, &text, &has_bos));
    rc = cb_tokenize(e->model, text, strlen(text), CB_TOK_SPECIAL | (has_bos ? 0 : CB_TOK_BOS), ids,
                     n);
    free(text);
    return rc;
}

int cb_chat_form_of(const struct opts *o, const struct engine *e, const struct chat_form **form)
{
    const int rc = cb_chat_form(e->model->gguf, cb_opt_text(o, ARG_CHAT_TEMPLATE), form);
    return rc && cb_opt_set(o, ARG_CHAT_TEMPLATE) ? CB_USAGE : rc;
}

static int chat_prompt(const struct opts *o, const struct engine *e, int32_t **ids, int *n)
{
    const char *system = cb_opt_text(o, ARG_SYSTEM);
    const struct chat_form *form;
    struct buf user;
    int rc;

    TRY(cb_chat_form_of(o, e, &form));
    TRY(cb_read_prompt(o, "\n\n", &user)); /* a document and a question: two paragraphs */
    if (strlen(user.s) != user.n) {
        rc = cb_fail(CB_EARG, "prompt: has a NUL byte, which a chat template cannot carry");
    } else {
        const struct chat_msg msg[] = { { "system", system }, { "user", user.s } };
        rc = chat_ids(e, form, system ? msg : msg + 1, system ? 2 : 1, ids, n);
    }
    cb_buf_free(&user);
    return rc;
}

/* An empty prompt starts from BOS where the model has one. */
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
    if (!rc && *n == 0)
        rc = from_nothing(e, ids, n);
    return rc;
}
