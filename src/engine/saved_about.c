/* SPDX-License-Identifier: MIT */
/* saved_about.c - what a saved session says of itself: what it was opened with, and for which
 * model. */
#include "saved_about.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/json.h"
#include "device/prepacked.h"

void cb_saved_hex(uint64_t x, char out[SAVED_HEX])
{
    snprintf(out, SAVED_HEX, "%016" PRIx64, x);
}

/* Who can read the prepacked blocks; "" where there are none */
static const char *layout(const struct cb_session *s)
{
    for (int l = 0; l < s->bank.n_layer; l++)
        if (s->bank.store[l].prepacked)
            return cb_prepacked_form(s->dev->isa);
    return "";
}

static const char *text_or(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

uint64_t cb_saved_rotation(const struct cb_session *s)
{
    uint64_t h = 0;

    for (int i = 0; i < ROPE_TABLES; i++)
        if (s->rope[i].inv_freq) {
            h = XXH3_64bits_withSeed(s->rope[i].inv_freq,
                                     (size_t)s->rope[i].n_rot / 2 * sizeof(float), h);
            h = XXH3_64bits_withSeed(&s->rope[i].scale, sizeof s->rope[i].scale, h);
        }
    return h;
}

static json_t *session_json(const struct cb_session *s)
{
    const struct cb_session_params *p = &s->params;
    char plan[SAVED_HEX], turns[SAVED_HEX];

    cb_saved_hex(cb_policy_plan_hash(s->policy), plan);
    cb_saved_hex(cb_saved_rotation(s), turns);
    return json_pack("{s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:s}", "n_ctx", s->n_ctx, "chunk",
                     s->chunk, "type_k", text_or(p->type_k, "f16"), "type_v",
                     text_or(p->type_v, "f16"), "policy", p->policy, "prefill",
                     text_or(p->prefill, "dense"), "plan", plan, "rotation", turns);
}

json_t *cb_saved_device(const struct cb_session *s)
{
    return json_pack("{s:s, s:i, s:s, s:s, s:b}", "name", s->dev->name, "index", s->dev->index,
                     "isa", text_or(s->dev->isa, ""), "matmul", s->model->matmul, "rows_only",
                     s->model->rows_only);
}

int cb_saved_about(const struct cb_session *s, json_t **out)
{
    char weights[SAVED_HEX];
    uint64_t hash;

    TRY(cb_model_weights_hash(s->model, &hash));
    cb_saved_hex(hash, weights);
    *out = json_pack("{s:s, s:{s:s, s:s, s:s}, s:o, s:o, s:s, s:i, s:i, s:I, s:I, s:I}", "program",
                     "ctxbank " CTXBANK_VERSION_STRING, "model", "name", s->model->name, "family",
                     s->model->arch->name, "weights", weights, "session", session_json(s), "device",
                     cb_saved_device(s), "layout", layout(s), "tokens", s->bank.n_seen, "anew",
                     s->n_prefill_exact, "kv_bytes", (json_int_t)cb_bank_bytes(&s->bank),
                     "kv_peak_bytes", (json_int_t)s->bank.peak_bytes, "kv_read_bytes",
                     (json_int_t)s->bank.read_bytes);
    return *out ? CB_OK
                : cb_fail(CB_ENOMEM, "bank: its description: out of memory, or a name "
                                     "that is not UTF-8");
}

/* A copy of the session's settings; NULL: there are none, or no memory */
static json_t *without_capacity(json_t *session)
{
    json_t *out = json_is_object(session) ? json_object() : NULL, *v;
    const char *key;

    json_object_foreach(session, key, v)
    {
        if (strcmp(key, "n_ctx") != 0)
            cb_json_set(&out, key, json_incref(v));
    }
    return out;
}

json_t *cb_saved_settings(const json_t *about)
{
    json_t *session = without_capacity(json_object_get(about, "session"));

    if (!session)
        return NULL;
    return json_pack("{s:O?, s:O?, s:o?, s:O?}", "program", json_object_get(about, "program"),
                     "model", json_object_get(about, "model"), "session", session, "device",
                     json_object_get(about, "device"));
}

int cb_saved_has_logits(const json_t *about)
{
    return !json_is_false(json_object_get(about, "logits"));
}
