/* SPDX-License-Identifier: MIT */
/* api_text.c - /tokenize and /detokenize. */
#include <stdlib.h>

#include "api.h"
#include "base/err.h"
#include "fields.h"

static int tokenize(const struct exchange *x, json_t **out)
{
    const json_t *v = cb_field(x->json, "content");
    int bos = 0, special = 1, pieces = 0, n;
    json_t *list = json_array();
    int32_t *ids;

    if (!json_is_string(v)) {
        json_decref(list);
        return cb_fail(CB_EARG, "content: must be a text");
    }
    *out = list;
    TRY(cb_field_flag(x->json, "add_special", &bos));
    TRY(cb_field_flag(x->json, "parse_special", &special));
    TRY(cb_field_flag(x->json, "with_pieces", &pieces));
    TRY(cb_tokenize(x->s->m.model, json_string_value(v), json_string_length(v),
                    (bos ? CB_TOK_BOS : 0) | (special ? CB_TOK_SPECIAL : 0), &ids, &n));
    for (int i = 0; i < n; i++) {
        char s[256];
        const int len = cb_token_bytes(x->s->m.model, ids[i], 1, s, sizeof s);
        cb_json_add(&list, pieces ? json_pack("{s:i, s:o}", "id", ids[i], "piece",
                                              cb_json_text(s, (size_t)(len < 256 ? len : 256)))
                                  : json_integer(ids[i]));
    }
    free(ids);
    *out = list;
    return CB_OK;
}

void cb_api_tokenize(struct exchange *x)
{
    json_t *list = NULL;
    const int rc = tokenize(x, &list);

    if (!rc) {
        cb_exchange_json(x, 200, json_pack("{s:o}", "tokens", list));
        return;
    }
    json_decref(list);
    cb_exchange_fail(x, rc);
}

static int detokenize(const struct exchange *x, cb_detokenizer *d, struct buf *text)
{
    const int n_vocab = cb_n_vocab(x->s->m.model);
    const json_t *list, *v;
    const char *s;
    size_t i, n;

    TRY(cb_field_array(x->json, "tokens", &list));
    if (!list)
        return cb_fail(CB_EARG, "tokens: must be a list of token ids");
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= n_vocab)
            return cb_fail(CB_EARG, "tokens: [%zu] is no token id below %d", i, n_vocab);
        TRY(cb_detokenizer_push(d, (int32_t)json_integer_value(v), &s, &n));
        TRY(cb_buf_put(text, s, n));
    }
    cb_detokenizer_end(d, &s, &n);
    return cb_buf_put(text, s, n);
}

void cb_api_detokenize(struct exchange *x)
{
    cb_detokenizer *d;
    struct buf text = { 0 };
    int rc = cb_detokenizer_new(x->s->m.model, CB_TOK_SPECIAL | CB_TOK_WHOLE, &d);

    if (!rc)
        rc = detokenize(x, d, &text);
    if (rc)
        cb_exchange_fail(x, rc);
    else
        cb_exchange_json(x, 200, json_pack("{s:o}", "content", cb_json_text(text.s, text.n)));
    cb_detokenizer_free(d);
    cb_buf_free(&text);
}
