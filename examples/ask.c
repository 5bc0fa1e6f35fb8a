/* SPDX-License-Identifier: MIT */
/* ask.c - asks a model about a document: ask MODEL.gguf QUESTION <DOCUMENT. As C11 or C++17:
 *
 *   cc -o ask ask.c $(pkg-config --cflags --libs ctxbank) */
#include <ctxbank.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int status)
{
    if (status < 0) {
        fprintf(stderr, "ask: %s\n", cb_error());
        exit(1);
    }
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
    cb_detokenizer *stream;
    const char *text;
    int32_t *ids;
    size_t len;
    int n;

    if (argc != 3) {
        fprintf(stderr, "usage: ask MODEL.gguf QUESTION <DOCUMENT\n");
        return 2;
    }
    len = fread(prompt, 1, sizeof prompt - 4096, stdin);
    snprintf(prompt + len, 4096, "\n\n%s", argv[2]);

    must(cb_model_open(argv[1], NULL, &model));
    must(cb_chat_tokenize(model, NULL, &message, 1, 1, 0, &ids, &n));
    how.n_ctx = n + 200;
    how.policy = "omnikv"; /* most layers read only the tokens that matter */
    choice.temp = 0;       /* always the likeliest token */
    must(cb_session_open(model, &how, &session));
    must(cb_sampler_new(&choice, cb_n_vocab(model), &sampler));
    must(cb_detokenizer_new(model, 0, &stream));

    must(cb_session_prefill(session, ids, n, NULL));
    for (int i = 0; i < 200; i++) {
        const int32_t id = cb_sampler_pick(sampler, cb_session_logits(session));
        if (cb_token_is_end(model, id))
            break;
        must(cb_detokenizer_push(stream, id, &text, &len));
        fwrite(text, 1, len, stdout);
        fflush(stdout);
        must(cb_session_decode(session, id));
    }
    cb_detokenizer_end(stream, &text, &len);
    printf("%s\n", text);

    cb_detokenizer_free(stream);
    cb_sampler_free(sampler);
    cb_session_close(session);
    cb_model_close(model);
    free(ids);
    return 0;
}
