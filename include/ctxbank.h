/* SPDX-License-Identifier: MIT */
/* ctxbank.h - the public interface: a model is opened once and shared, a session is one timeline.
 *
 * Every function that can fail returns CB_OK or a negative status; cb_error() then says what and
 * why. Nothing here prints or exits.
 *
 * Threads: sessions on one model may be used by different threads at the same time; calls that
 * compute take turns, in the order of asking. A session is used by one thread at a time. A model
 * is closed after its sessions, by one thread.
 *
 * Callbacks run on the calling thread while it has its turn, so they must return, and must not wait
 * for a thread that uses the same model. Inside one, calls that compute on the model fail with
 * CB_EARG, and clear and close do nothing.
 *
 * fork(): a child may go on with what it inherited, on its one thread, if no other thread was
 * computing at the time; it is better to open a model after the fork. */
#ifndef CTXBANK_H
#define CTXBANK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CB_API __attribute__((visibility("default")))
#else
#define CB_API
#endif

enum cb_status {
    CB_OK = 0,
    CB_ENOMEM = -1,       /* no memory for what was asked */
    CB_EIO = -2,          /* a file could not be opened, read or written */
    CB_EFORMAT = -3,      /* a file is damaged or is not what it should be */
    CB_EUNSUPPORTED = -4, /* a sound file or option that this version cannot serve */
    CB_EARG = -5,         /* an argument is out of range */
    CB_EFULL = -6,        /* the tokens do not fit into the context */
    CB_ECANCEL = -7       /* a callback asked to stop */
};

typedef struct cb_model cb_model;
typedef struct cb_session cb_session;

CB_API const char *cb_version(void);
CB_API const char *cb_error(void); /* of this thread's last failure; valid until the next one */

/* ---- model ---- */

struct cb_model_params {
    int n_threads;      /* 0 = physical cores that affinity and cgroup allow */
    const char *device; /* "cpu" (NULL means it), "ref" */
    const char
        *numa; /* "off" (NULL means it), "distribute", "isolate": threads on nodes of memory */
    int pin;   /* 1 = each thread stays on a core of its own, the calling one during calls */
};

struct cb_model_info {
    const char *arch, *name, *quant; /* "llama", "SmolLM2 135M", "Q4_1"; owned by the model */
    int64_t n_params;
    uint64_t file_bytes;
    int n_layer, n_embd, n_head, n_kv, head_dim, n_ff, n_vocab, n_ctx_train;
    int32_t bos, eos; /* -1 = none */
    int add_bos;
};

CB_API int cb_model_open(const char *path, const struct cb_model_params *params, cb_model **out);
CB_API void cb_model_close(cb_model *model);
CB_API void cb_model_get_info(const cb_model *model, struct cb_model_info *out);

/* ---- text ---- */

enum {
    CB_TOK_BOS = 1,
    CB_TOK_SPECIAL = 2
}; /* add BOS if the model asks for it; parse special tokens */

/* text[len] (UTF-8, need not end in NUL) -> ids[*n]; the caller frees *ids with free(). */
CB_API int cb_tokenize(const cb_model *model, const char *text, size_t len, int flags,
                       int32_t **ids, int *n);
/* Bytes of one token; special tokens give nothing unless `special`. Returns the number of bytes
 * that the token has, of which at most `cap` were written. */
CB_API int cb_token_bytes(const cb_model *model, int32_t id, int special, char *buf, int cap);
CB_API int cb_token_is_end(const cb_model *model, int32_t id); /* ends a turn: EOS, EOT, EOM */
/* All that do -> *ids, which belong to the model; how many */
CB_API int cb_token_ends(const cb_model *model, const int32_t **ids);

/* ---- session ---- */

struct cb_session_params {
    int n_ctx;          /* most tokens in the timeline; 0 = what the model was trained for */
    int chunk;          /* tokens a weight matrix meets at once in prefill; 0 = default */
    const char *type_k; /* stored form of keys and values: "f16" (NULL means it), "f32", ... */
    const char *type_v;
    const char *policy;  /* NAME[:key=value,...]; NULL = "full" */
    const char *prefill; /* NULL = "dense" */
};

struct cb_memory {
    uint64_t weights_bytes;           /* as in the file, and the preview of the output matrix */
    uint64_t kv_bytes;                /* held by the bank now */
    uint64_t kv_full_bytes;           /* what every token at f16 would hold */
    uint64_t kv_peak_bytes;           /* the most that the bank ever held */
    uint64_t kv_read_bytes_per_token; /* by the last decoded token; 0 after a prompt */
    uint64_t scratch_bytes;           /* activations and work space */
    uint64_t
        shared_bytes; /* of weights and scratch: what sessions of one model share; count it once */
    int kept_min, kept_max; /* slots of the shortest and the longest store */
    int at_most; /* 1: a plan whose bank is the most, since what is kept depends on the text */
};

CB_API int cb_session_open(cb_model *model, const struct cb_session_params *params,
                           cb_session **out);
CB_API void cb_session_close(cb_session *session);
CB_API void cb_session_clear(cb_session *session); /* back to an empty timeline */

/* What a prompt of n_prompt tokens and n_gen generated ones will need, before either is run. */
CB_API int cb_session_plan(const cb_session *session, int n_prompt, int n_gen,
                           struct cb_memory *out);
CB_API void cb_session_memory(const cb_session *session, struct cb_memory *out);
CB_API int cb_session_len(const cb_session *session); /* tokens in the timeline */
/* What the user should know of the policy as it was opened, such as a default that was not made for
 * this model; "" when there is nothing. */
CB_API const char *cb_session_note(const cb_session *session);

/* done of total tokens; the whole prompt passes a layer before the next one begins, and a layer
 * counts as its share of each token. Non-zero stops the prefill with CB_ECANCEL; the session then
 * holds what it held before, or nothing where the policy had dropped tokens already. */
typedef int (*cb_progress_fn)(void *arg, int64_t done, int64_t total);
/* logits[n_vocab] after token i of the prompt. */
typedef void (*cb_logits_fn)(void *arg, int i, const float *logits);

struct cb_prefill {
    cb_progress_fn progress;
    void *progress_arg;
    cb_logits_fn
        logits; /* called for tokens logits_from.. in order; NULL = only the last is kept */
    void *logits_arg;
    int logits_from;
};

/* Appends tokens[n] to the timeline. `how` may be NULL. */
CB_API int cb_session_prefill(cb_session *session, const int32_t *tokens, int n,
                              const struct cb_prefill *how);
/* The same in steps, each of which takes a small part of the time, so that other sessions can be
 * fed between them: one chunk of tokens goes through one layer. begin() copies *how and needs the
 * tokens no more once it returns. step() returns 1 while anything is left and 0 when the prompt is
 * done, with the same logits as cb_session_prefill(). Until then the session takes no other tokens;
 * cancel() (or cb_session_clear()) leaves it as a failed prefill does. */
CB_API int cb_session_prefill_begin(cb_session *session, const int32_t *tokens, int n,
                                    const struct cb_prefill *how);
CB_API int cb_session_prefill_step(cb_session *session);
CB_API void cb_session_prefill_cancel(cb_session *session);
/* Appends tokens[i] to sessions[i], for n different sessions of one model, with any policies and
 * types: as n calls of cb_session_decode(), with the same logits to the bit, but weights are read
 * once for all. All logits are made, whatever cb_session_want_top() says. When a call fails, no
 * session has its token; those whose policy drops tokens are empty. In batches larger than the
 * first session's chunk, the sessions of chunks before the failure have theirs. */
CB_API int cb_decode_batch(cb_session *const *sessions, const int32_t *tokens, int n);
/* Appends one token. */
CB_API int cb_session_decode(cb_session *session, int32_t token);
/* logits[n_vocab] that follow the last token; valid until the next call on the session. */
CB_API const float *cb_session_logits(const cb_session *session);
/* Of a token that is decoded from now on the k largest logits are wanted: the others may be
 * approximations that are smaller than these. 0: all are (as in a new session). In a small model
 * with a large vocabulary that spares a fifth of a token's bytes; it makes a preview of the output
 * matrix once for a model (CB_ENOMEM). */
CB_API int cb_session_want_top(cb_session *session, int k);

/* ---- sampling ---- */

struct cb_sampler_params {
    uint64_t seed;
    float temp;                                /* 0 = greedy */
    int top_k;                                 /* 0 = off */
    float top_p, min_p;                        /* 1 and 0 = off */
    float repeat_penalty;                      /* 1 = off */
    float frequency_penalty, presence_penalty; /* 0 = off */
    int penalty_last_n; /* tokens that penalties look back on; 0 = off, -1 = all */
};

typedef struct cb_sampler cb_sampler;
CB_API struct cb_sampler_params cb_sampler_defaults(void);
CB_API int cb_sampler_new(const struct cb_sampler_params *params, int n_vocab, cb_sampler **out);
CB_API void cb_sampler_free(cb_sampler *sampler);
CB_API void cb_sampler_accept(cb_sampler *sampler, int32_t token); /* counts for the penalties */
/* Of how many of the largest logits a sampler will choose; 0: all. For cb_session_want_top(). */
CB_API int cb_sampler_top(const struct cb_sampler_params *params);
CB_API int32_t cb_sampler_pick(cb_sampler *sampler, const float *logits);

#ifdef __cplusplus
}
#endif
#endif
