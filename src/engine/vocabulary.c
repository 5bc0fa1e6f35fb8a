/* SPDX-License-Identifier: MIT */
/* vocabulary.c - a model's facts and tokens, for the public interface. */
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "model/assistant.h"
#include "model/model.h"
#include "par/par.h"
#include "text/conversation_text.h"

void cb_model_get_info(const cb_model *m, struct cb_model_info *out)
{
    const struct hparams *hp = &m->hp;

    *out = (struct cb_model_info){
        .arch = m->arch ? m->arch->name : "",
        .name = m->name,
        .quant = m->arch ? cb_model_main_type(m) : "",
        .n_params = m->n_params,
        .file_bytes = cb_gguf_file_bytes(m->gguf),
        .n_layer = hp->n_layer,
        .n_policy_layer = cb_model_policy_layers(m),
        .n_embd = hp->n_embd,
        .n_head = hp->n_head,
        .n_kv = hp->n_kv,
        .head_dim = hp->hd,
        .n_ff = hp->n_ff,
        .n_vocab = hp->n_vocab,
        .n_ctx_train = hp->n_ctx_train,
        .bos = cb_tok_bos(m->tok),
        .eos = cb_tok_eos(m->tok),
        .add_bos = cb_tok_add_bos(m->tok),
        .pooling = hp->pooling <= CB_POOL_LAST ? (enum cb_pooling)hp->pooling : CB_POOL_MODEL,
        .space_prefix = cb_tok_space_prefix(m->tok),
        .device = m->dev ? m->dev->name : "",
        .isa = m->dev ? m->dev->isa : "",
        .n_threads = m->n_threads,
        .n_threads_batch = m->n_threads_batch,
        .fingerprint = m->fingerprint,
        .chat_form = cb_chat_default(m->gguf),
        .n_unused_layer = m->unused.later ? hp->n_block - hp->n_layer - (m->mtp != NULL) : 0,
        .n_draft_layer = m->mtp != NULL,
        .unused_layer_bytes = m->unused.later,
        .unused_senses_bytes = m->unused.senses,
        .n_target_embd = m->assistant ? m->assistant->n_target : 0,
        .open_bytes = m->open_bytes,
        .policy = cb_model_policy(m),
    };
}

int cb_n_vocab(const cb_model *m)
{
    return m->hp.n_vocab;
}

/* Models of one family pad their vocabularies to different sizes. */
enum { MOST_PADDING = 1024, MOST_PIECE = 512 };

/* The token's bytes, as many as are compared -> buf[MOST_PIECE]; returns their number */
static int piece(const cb_model *m, int32_t id, char *buf)
{
    return min_int(cb_tok_piece(m->tok, id, 1, buf, MOST_PIECE), MOST_PIECE);
}

int cb_model_same_tokens(const cb_model *a, const cb_model *b)
{
    const int na = cb_tok_n_vocab(a->tok), nb = cb_tok_n_vocab(b->tok), n = min_int(na, nb);
    char x[MOST_PIECE], y[MOST_PIECE];

    if (max_int(na, nb) - n > MOST_PADDING)
        return cb_fail(CB_EARG, "vocabularies differ: %d tokens and %d", na, nb);
    for (int i = 0; i < n; i++) {
        const int nx = piece(a, i, x), ny = piece(b, i, y);
        if (nx != ny || memcmp(x, y, (size_t)nx))
            return cb_fail(CB_EARG, "vocabularies differ: token %d is '%.*s' and '%.*s'", i, nx, x,
                           ny, y);
    }
    return CB_OK;
}

int cb_model_drafts_for(const cb_model *draft, const cb_model *model)
{
    TRY(cb_model_same_tokens(draft, model));
    return draft->assistant ? cb_assistant_check(draft, model) : CB_OK;
}

int cb_tokenize(const cb_model *m, const char *text, size_t len, int flags, int32_t **ids, int *n)
{
    return cb_tok_encode(m->tok, text, len, flags, ids, n);
}

int cb_token_bytes(const cb_model *m, int32_t id, int special, char *buf, int cap)
{
    return cb_tok_piece(m->tok, id, special, buf, cap);
}

int cb_token_is_end(const cb_model *m, int32_t id)
{
    return cb_tok_is_end(m->tok, id);
}

int cb_token_ends(const cb_model *m, const int32_t **ids)
{
    return cb_tok_ends(m->tok, ids);
}
