/* SPDX-License-Identifier: MIT */
/* prompt.c - turns the user's prompt into token ids; chat templates. */
#include "prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_lenient.h"

static int read_template(const char *path, struct buf *out)
{
    TRY(cb_read_file(path, out));
    if (strlen(out->s) != out->n)
        return cb_fail(CB_EFORMAT, "%s: has a NUL byte", path);
    if (!strstr(out->s, "{{") && !strstr(out->s, "{%"))
        return cb_fail(CB_EFORMAT, "%s: no template in the language Jinja", path);
    return CB_OK;
}

static int check_vars(const char *vars)
{
    json_error_t why;
    json_t *j = vars ? cb_json_read(vars, strlen(vars), &why) : NULL; /* read in full later */
    const int replaces = json_object_get(j, "messages") != NULL;

    json_decref(j);
    return replaces ? cb_usage("--chat-template-kwargs: messages would replace the prompt") : CB_OK;
}

int cb_chat_choose(const struct opts *o, const struct engine *e, struct chat_choice *c)
{
    const char *path = cb_opt_text(o, ARG_CHAT_TEMPLATE_FILE);
    char *text;

    *c = (struct chat_choice){ .how = { .form = cb_opt_text(o, ARG_CHAT_TEMPLATE),
                                        .vars = cb_opt_text(o, ARG_CHAT_TEMPLATE_VARS) } };
    if (path && c->how.form)
        return cb_usage("chat-template: given twice, also by --chat-template-file");
    TRY(check_vars(c->how.vars));
    if (path)
        TRY(read_template(path, &c->file));
    if (path)
        c->how.form = c->file.s;
    TRY(cb_chat_text(e ? e->model : NULL, &c->how, NULL, 0, 0, &text));
    free(text);
    return CB_OK;
}

void cb_chat_choice_free(struct chat_choice *c)
{
    cb_buf_free(&c->file);
}

/* A file without a text is a mistake, unless a bank is something to continue from. */
static int check_file(const struct opts *o, const struct buf *text)
{
    return !text->n && cb_opt_set(o, ARG_FILE) && !cb_opt_set(o, ARG_BANK)
               ? cb_fail(CB_EARG, "prompt: the file is empty (-f)")
               : CB_OK;
}

static int chat_ids(const struct opts *o, const struct engine *e, const struct cb_chat *how,
                    int32_t **ids, int *n)
{
    const char *system;
    struct buf user = { 0 }, file;
    int rc = cb_read_system(o, &file, &system);

    if (!rc) /* a document and a question: two paragraphs */
        rc = cb_read_prompt(o, "\n\n", &user);
    if (!rc && strlen(user.s) != user.n) {
        rc = cb_fail(CB_EARG, "prompt: has a NUL byte, which a chat template cannot carry");
    } else if (!rc) {
        const struct cb_message msg[] = { { "system", system }, { "user", user.s } };
        rc = cb_chat_tokenize(e->model, how, system ? msg : msg + 1, system ? 2 : 1, 1, 0, ids, n);
    }
    cb_buf_free(&user);
    cb_buf_free(&file);
    if (!rc && !*n && !cb_opt_set(o, ARG_BANK))
        rc = cb_fail(CB_EARG, "chat template: writes nothing for this prompt");
    return rc;
}

static int chat_prompt(const struct opts *o, const struct engine *e, int32_t **ids, int *n)
{
    struct chat_choice c;
    int rc = cb_chat_choose(o, e, &c);

    if (!rc)
        rc = chat_ids(o, e, &c.how, ids, n);
    cb_chat_choice_free(&c);
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

/* A system message or a template on the command line says that a chat is meant. */
static int wants_chat(const struct opts *o)
{
    static const enum opt_id of_chat[] = { ARG_SYSTEM, ARG_SYSTEM_FILE, ARG_CHAT_TEMPLATE,
                                           ARG_CHAT_TEMPLATE_FILE, ARG_CHAT_TEMPLATE_VARS };

    for (size_t i = 0; i < sizeof of_chat / sizeof *of_chat; i++)
        if (cb_opt_typed(o, of_chat[i]))
            return 1;
    return cb_opt_flag(o, ARG_CHAT);
}

int cb_prompt_ids(const struct opts *o, const struct engine *e, int32_t **ids, int *n)
{
    struct buf in;
    int rc;

    *ids = NULL;
    if (wants_chat(o))
        return chat_prompt(o, e, ids, n);
    TRY(cb_read_prompt(o, "", &in));
    rc = check_file(o, &in);
    if (!rc)
        rc = cb_tokenize(e->model, in.s, in.n, CB_TOK_BOS | CB_TOK_SPECIAL, ids, n);
    cb_buf_free(&in);
    if (!rc && *n == 0 && !cb_opt_set(o, ARG_BANK)) /* a bank is something to continue from */
        rc = from_nothing(e, ids, n);
    return rc;
}
