/* SPDX-License-Identifier: MIT */
/* ask.c - asks a model about a document: ask MODEL.gguf QUESTION <DOCUMENT. As C11 or C++17:
 *   cc -o ask ask.c $(pkg-config --cflags --libs ctxbank) */
#include <ctxbank.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int status)
{
    if (status < 0)
        exit((fprintf(stderr, "ask: %s\n", cb_error()), 1));
}

static int print(void *to, const char *text, size_t len)
{
    return fwrite(text, 1, len, (FILE *)to) != len || fflush((FILE *)to);
}

int main(int argc, char **argv)
{
    static char prompt[1 << 20]; /* the document, a blank line, the question */
    const struct cb_message message = { "user", prompt };
    struct cb_session_params how = cb_session_defaults();
    struct cb_sampler_params choice = cb_sampler_defaults();
    cb_model *model;
    cb_session *session;
    cb_sampler *sampler;
    int32_t *ids;
    int n;

    if (argc != 3)
        return fputs("usage: ask MODEL.gguf QUESTION <DOCUMENT\n", stderr), 2;
    n = (int)fread(prompt, 1, sizeof prompt - 4096, stdin);
    snprintf(prompt + n, 4096, "\n\n%s", argv[2]);

    must(cb_model_open(argv[1], NULL, &model));
    must(cb_chat_tokenize(model, NULL, &message, 1, 1, 0, &ids, &n));
    how.n_ctx = n + 200;
    how.policy = "omnikv"; /* most layers read only the tokens that matter */
    choice.temp = 0;       /* always the likeliest token */
    must(cb_session_open(model, &how, &session));
    must(cb_sampler_new(&choice, cb_n_vocab(model), &sampler));
    must(cb_session_prefill(session, ids, n, NULL));
    must(cb_session_generate(session, sampler, 200, print, stdout));
    putchar('\n');

    cb_sampler_free(sampler);
    cb_session_close(session);
    cb_model_close(model);
    free(ids);
    return 0;
}
