/* SPDX-License-Identifier: MIT */
/* ctxbank.h - the public interface: a model is opened once and shared, a session is one timeline.
 *
 * Errors: a function that returns int returns CB_OK (0) or a negative status, unless its comment
 * says that it returns a count. After a failure, cb_error() says in one line what failed and why.
 * No function prints, exits or reads the environment.
 *
 * Threads: sessions on one model may be used by different threads at the same time; calls that
 * compute take turns, in the order of asking. A session, a sampler and a detokenizer are used by
 * one thread at a time. A model is closed after its sessions, by one thread. cb_error() reports the
 * calling thread's last failure.
 *
 * Callbacks run on the calling thread while it has its turn, so they must return, and must not wait
 * for a thread that uses the same model. Inside one, calls that compute on the model fail with
 * CB_EARG, and clear and close do nothing.
 *
 * fork(2): a child may use the models and sessions that it inherited, on its one thread, if no
 * other thread was computing when it was forked. Opening a model after the fork is better.
 *
 * Ownership: an object that an open or new function returns through its last argument is closed by
 * the function declared beside it. Texts and lists belong to the model unless a comment hands them
 * to the caller; without a model they live as long as the program. A struct that the caller fills
 * may be freed or changed as soon as the call returns. A field that is zero has its default.
 *
 * ctxbank(3) is the manual page; examples/ask.c is a complete program. */
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

/* ---- version ---- */

#define CTXBANK_VERSION_MAJOR 1
#define CTXBANK_VERSION_MINOR 0
#define CTXBANK_VERSION_PATCH 0
#define CTXBANK_VERSION_NUMBER                                                                     \
    (CTXBANK_VERSION_MAJOR * 10000 + CTXBANK_VERSION_MINOR * 100 + CTXBANK_VERSION_PATCH)
#define CTXBANK_VERSION_STRING "1.0.0"

CB_API const char *cb_version(void); /* CTXBANK_VERSION_STRING of the library at run time */
CB_API int cb_version_number(void);  /* its CTXBANK_VERSION_NUMBER: 10203 is 1.2.3 */

/* ---- errors ---- */

enum cb_status {
    CB_OK = 0,
    CB_ENOMEM = -1,       /* out of memory */
    CB_EIO = -2,          /* a file could not be opened, read or written */
    CB_EFORMAT = -3,      /* a file is damaged or has another format */
    CB_EUNSUPPORTED = -4, /* the file or option is valid, but this version does not support it */
    CB_EARG = -5,         /* an argument is out of range, or a name is unknown */
    CB_EFULL = -6,        /* the tokens do not fit into the context */
    CB_ECANCEL = -7       /* a callback asked to stop */
};

/* The calling thread's last failure: "WHAT: WHY", one line without control characters. Valid until
 * the thread's next failure; "" before the first. */
CB_API const char *cb_error(void);
/* What a status means in general: "no memory", "does not fit into the context", ... A positive
 * status is a success; an unknown negative one gives "unknown error". */
CB_API const char *cb_status_text(int status);

/* ---- what is built in ---- */

/* Each function fills *out with entry i, counted from 0, and returns CB_OK, or CB_EARG for an i
 * past the last one. All texts live as long as the program. */

struct cb_device_info {
    const char *name, *text; /* "cpu", and a description */
    int available;           /* 0: not usable on this machine; why_not says why */
    const char *why_not;     /* "" where it is available */
};
CB_API int cb_device_at(int i, struct cb_device_info *out);
/* "NAME:j" of entry i, for a kind of device of which a machine may have several: its model and its
 * memory in bytes. The text is cut to size. */
CB_API int cb_device_unit_at(int i, int j, char *text, size_t size, uint64_t *bytes);

/* A model family: a value of general.architecture in a file. */
struct cb_family_info {
    const char *name, *text; /* "llama", and the models of this family */
};
CB_API int cb_family_at(int i, struct cb_family_info *out);

/* A type in which keys or values are stored: its name goes into type_k or type_v. A block of
 * `block` numbers takes block_bytes; head_dim must be a multiple of block. */
struct cb_kv_type_info {
    const char *name, *text;
    int block, block_bytes;
};
CB_API int cb_kv_type_at(int i, struct cb_kv_type_info *out);

/* A policy, or a form of prefill. */
struct cb_method_info {
    const char *name, *text;
    const char *paper; /* "" where there is none */
    int n_option;
};
CB_API int cb_policy_at(int i, struct cb_method_info *out);
CB_API int cb_prefill_at(int i, struct cb_method_info *out);

enum cb_option_type {
    CB_OPTION_NUMBER,  /* def, min, max */
    CB_OPTION_INTEGER, /* def, min, max */
    CB_OPTION_FLAG,    /* 0 or 1: def */
    CB_OPTION_CHOICE,  /* one of choices: def */
    CB_OPTION_LIST,    /* numbers joined by +, such as "2+8+18" */
    CB_OPTION_TEXT
};

/* A key of NAME:key=value,... */
struct cb_option_info {
    const char *name;
    const char *unit; /* "tokens"; "" where there is none */
    const char *text;
    enum cb_option_type type;
    double def; /* CHOICE: index of a word in choices, counted from 0 */
    double min, max;
    const char *choices;  /* words separated by blanks; numbers: a word that may stand in their
                             place; "" for other types */
    const char *def_text; /* default of LIST and TEXT; "" for other types */
};
/* Option j of policy or prefill form i. */
CB_API int cb_policy_option_at(int i, int j, struct cb_option_info *out);
CB_API int cb_prefill_option_at(int i, int j, struct cb_option_info *out);

/* Name of chat form i for cb_chat_text(); NULL past the last one. */
CB_API const char *cb_chat_form_at(int i);

/* Default number of threads: the cores that affinity and the control group's quota allow. */
CB_API int cb_default_threads(void);

/* ---- model ---- */

typedef struct cb_model cb_model;

enum cb_log_level {
    CB_LOG_NOTE = 1, /* what a user should know: a setting that cannot work as asked, a default that
                        was not calibrated for this model */
    CB_LOG_DETAIL    /* what was opened, and how */
};
/* message: one line without a line end, valid during the call. Only cb_model_open() and
 * cb_session_open() call this, on the thread that called them. It must not call the library. */
typedef void (*cb_log_fn)(void *arg, enum cb_log_level level, const char *message);

/* An adapter (LoRA) in a GGUF file */
struct cb_adapter {
    const char *path;
    float scale; /* of what it adds, beside the file's own; 0 = 1 */
};

struct cb_model_params {
    int n_threads;       /* 0 = cb_default_threads(); at most 8 for each processor */
    int n_threads_batch; /* that read prompts; 0 = n_threads; else n_threads are for generated
                            tokens alone */
    const char *device; /* a name of cb_device_at(), "NAME:1" for its second device; "auto": the one
                           that is the fastest for this model, as measured; NULL = "cpu" */
    uint64_t working_set; /* most bytes of a device's own memory that are used; 0 = what it has,
                             less a reserve. CB_EARG for a device whose memory is the host's */
    int stream_kv; /* 1: a layer's keys and values are copied to such a device whenever a token
                      reads them, and none stay there; CB_EARG as above */
    const char *kernel_cache; /* folder that exists, for compiled kernels of devices; NULL = none */
    const char *numa; /* threads and NUMA nodes: "off" (NULL); "distribute": the same number of
                         threads on each node; "isolate": all on the caller's node */
    int pin; /* 1 = each thread stays on a core of its own; the calling thread does during calls */
    const char *isa; /* instruction set of the kernels: "scalar", "avx2", "avx512", "neon"; NULL =
                        the best that the machine supports */
    const char *matmul; /* matrix products of prompts by: "own" (NULL), "onednn", "openblas" */
    int rows_only;      /* 1 = keys and values are never prepacked into the integer blocks that the
                           kernels multiply; they stay rows */
    int small_pages;    /* 1 = the pages of a long context are not merged into huge pages */
    const char *preset_dir;   /* folder of presets, METHOD-FINGERPRINT.json, which fit a policy to a
                                 model; `pkg-config --variable=presetdir ctxbank` prints the
                                 installed one. NULL = none: policies use their general defaults */
    const char *rope_scaling; /* how positions beyond the model's training are scaled: "none",
                                 "linear", "dynamic" (NTK), "yarn"; NULL = as the file says */
    float rope_scale;         /* by this factor; 0 = as the file says */
    float rope_freq_base;     /* base of the rotation's frequencies; 0 = as the file says */
    const char *pre_tokenizer; /* how a byte-level BPE tokenizer splits words, instead of what the
                                  file says: a value of tokenizer.ggml.pre; NULL = the file's */
    const struct cb_adapter *adapters; /* [n_adapter] put onto the model while it is open. Their
                                          low-rank products are added to those of the weights,
                                          which stay as they are */
    int n_adapter;
    int draft_mtp;  /* most tokens, up to 16, of drafts by the file's own head for later tokens
                       (MTP; nextn tensors), for the sessions of this model: cb_speculation_new().
                       0 = the head is left unused, as it is on devices with memory of their own */
    int vocab_only; /* 1 = text functions only: no weights, no sessions */
    cb_log_fn log;  /* NULL = none. It may be called until the model is closed */
    void *log_arg;
};

/* Which states make the embedding of a text */
enum cb_pooling {
    CB_POOL_MODEL, /* as the file says; CB_POOL_LAST where it says nothing */
    CB_POOL_MEAN,  /* the mean of all tokens' */
    CB_POOL_CLS,   /* the first token's */
    CB_POOL_LAST   /* the last token's */
};

struct cb_model_info {
    const char *arch, *name,
        *quant; /* "llama", "SmolLM2 135M", "Q4_1"; arch and quant are "" with vocab_only */
    int64_t n_params;
    uint64_t file_bytes;
    int n_layer, n_embd, n_head, n_kv, head_dim, n_ff, n_vocab, n_ctx_train;
    int n_policy_layer;      /* layers on which policies act: all, or those that see everything in a
                                model whose other layers see a window alone */
    int32_t bos, eos;        /* -1 = none */
    int add_bos;             /* 1: texts begin with bos */
    enum cb_pooling pooling; /* of embeddings, as the file says; CB_POOL_MODEL: it says nothing */
    int space_prefix; /* 1: the tokenizer puts a space before a text; CB_TOK_WHOLE removes it */
    const char *device, *isa; /* "cpu", "avx512"; "" with vocab_only */
    int n_threads, n_threads_batch;
    uint64_t fingerprint;  /* hash of shape and vocabulary: the same in every quantisation. Names of
                              presets contain it as %016x. 0 with vocab_only */
    const char *chat_form; /* how conversations are written by default: "jinja", by the file's own
                              template; a built-in form; NULL: there is neither */
    /* What the file has beside the text model, and is left unused: blocks that guess tokens after
     * the next one (nextn, MTP), and what reads images and sound */
    int n_unused_layer;
    int n_draft_layer; /* those of these blocks that make drafts (cb_model_params.draft_mtp) */
    uint64_t unused_layer_bytes, unused_senses_bytes;
    const char *policy;  /* of sessions for which none is named: "own" where layers have trained
                            selectors, else "full" */
    int n_target_embd;   /* > 0: the model only guesses for others, whose n_embd this is: see
                            cb_speculation_set_draft(). Its sessions take no tokens */
    uint64_t open_bytes; /* most pages of the file that are in memory beside repacked weights while
                            the model opens; the kernel can take them back */
};

CB_API struct cb_model_params cb_model_defaults(void); /* all zero */
/* Opens the GGUF file `path`. params may be NULL: the defaults. *out is NULL after a failure; the
 * caller closes it after its sessions. CB_EIO, CB_EFORMAT, CB_EUNSUPPORTED: the file; CB_EARG,
 * CB_EUNSUPPORTED: params; CB_ENOMEM. */
CB_API int cb_model_open(const char *path, const struct cb_model_params *params, cb_model **out);
CB_API void cb_model_close(cb_model *model); /* NULL is allowed */
CB_API void cb_model_get_info(const cb_model *model, struct cb_model_info *out);
/* A hash of all weights and of what else decides about results. The first call, of this or of
 * anything that saves or finds banks, reads the whole file. CB_EARG: the model was opened for its
 * vocabulary alone; CB_ENOMEM. */
CB_API int cb_model_fingerprint(cb_model *model, uint64_t *out);
/* For a handler of SIGBUS, with its si_addr. 1: a session of the model has mapped a saved bank
 * whose file another program made shorter meanwhile. Its rows read as zeros from now on, the call
 * that reads them ends with CB_EIO, and the handler returns. 0: the address is another one.
 * Async-signal-safe. */
CB_API int cb_model_page_lost(cb_model *model, const void *address);
CB_API int cb_n_vocab(const cb_model *model); /* ids are 0 to n_vocab - 1 */
/* CB_EARG, with the first difference, unless the models' tokens are the same; up to 1,024 more in
 * one of them count as padding. */
CB_API int cb_model_same_tokens(const cb_model *a, const cb_model *b);
/* CB_EARG, with the first difference, unless sessions of `draft` can guess for those of `model`:
 * their tokens are the same, and an assistant (cb_model_info.n_target_embd) is for models of this
 * family and shape. */
CB_API int cb_model_drafts_for(const cb_model *draft, const cb_model *model);

/* ---- text and tokens ---- */

enum {
    CB_TOK_BOS = 1,     /* add BOS in front if the model asks for it */
    CB_TOK_SPECIAL = 2, /* special tokens that the text spells, such as <|im_end|>, become those
                           tokens; without the flag they are ordinary text */
    CB_TOK_EOS = 8,     /* append EOS if the model asks for it, as models of embeddings do */
    CB_TOK_WHOLE = 4    /* detokenizing: the tokens are a text from its beginning, so the space that
                           the tokenizer put in front of it is removed */
};

/* text[len] (UTF-8, need not end in NUL) -> ids[*n]; the caller frees *ids with free(). flags:
 * CB_TOK_BOS, CB_TOK_EOS, CB_TOK_SPECIAL. Invalid UTF-8 becomes byte tokens. */
CB_API int cb_tokenize(const cb_model *model, const char *text, size_t len, int flags,
                       int32_t **ids, int *n);
/* Writes the bytes of one token to buf, at most `cap` of them, without a NUL; they may be part of a
 * character. Special tokens have no bytes unless `special`. Returns the token's length in bytes,
 * which may exceed cap; 0 for an id outside the vocabulary. */
CB_API int cb_token_bytes(const cb_model *model, int32_t id, int special, char *buf, int cap);
CB_API int cb_token_is_end(const cb_model *model, int32_t id); /* 1: ends a turn (EOS, EOT, EOM) */
/* All tokens that end a turn -> *ids, which belong to the model; returns how many. */
CB_API int cb_token_ends(const cb_model *model, const int32_t **ids);

/* Turns tokens into text one at a time and returns whole characters only. Bytes that cannot become
 * a character are replaced by U+FFFD. */
typedef struct cb_detokenizer cb_detokenizer;
/* flags: CB_TOK_SPECIAL: special tokens are written as their names; CB_TOK_WHOLE. The model must
 * stay open. */
CB_API int cb_detokenizer_new(const cb_model *model, int flags, cb_detokenizer **out);
CB_API void cb_detokenizer_free(cb_detokenizer *d); /* NULL is allowed */
/* The characters that this token completes -> *text, *len bytes and a NUL, valid until the next
 * call on d. *len is 0 if the token completes none. CB_ENOMEM */
CB_API int cb_detokenizer_push(cb_detokenizer *d, int32_t id, const char **text, size_t *len);
/* Call after the last token: an unfinished character as U+FFFD -> *text, *len bytes. After it, d
 * can take another text. */
CB_API void cb_detokenizer_end(cb_detokenizer *d, const char **text, size_t *len);

/* ---- chat ---- */

struct cb_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text;
};

struct cb_chat {
    const char *form; /* NULL: the file's own template, or the built-in form that it resembles if it
                         is not understood; "jinja": the file's own; a name from cb_chat_form_at();
                         or the text of a template in the language Jinja */
    const char *vars; /* NULL, or a JSON object: variables for the template, such as "tools" or
                         "enable_thinking". "messages" in it replaces msg: messages with tool calls
                         and other fields. Built-in forms have no variables */
};

/* The conversation msg[n], followed, with `ask`, by the opening of the assistant's turn -> *text,
 * ended by NUL; the caller frees it. how may be NULL: the defaults. A system message that the
 * template refuses or leaves out goes in front of the user's first text. Without messages, `ask`
 * and variables only `how` is checked; model may then be NULL if how names a form. CB_EUNSUPPORTED:
 * the model has no template that is understood, and none was named; CB_EARG: the form, a role or
 * `vars` is bad, or the template refuses the conversation; CB_EFORMAT: the template fails or needs
 * too much. */
CB_API int cb_chat_text(const cb_model *model, const struct cb_chat *how,
                        const struct cb_message *msg, int n, int ask, char **text);
/* The same as token ids[*n_ids]; the caller frees *ids. Only what the template itself writes
 * becomes special tokens; special tokens spelled in a message or variable are ordinary text.
 * from > 0: the timeline already holds the first `from` bytes of cb_chat_text(), and only the text
 * after them is tokenized. */
CB_API int cb_chat_tokenize(const cb_model *model, const struct cb_chat *how,
                            const struct cb_message *msg, int n, int ask, size_t from,
                            int32_t **ids, int *n_ids);

/* ---- session ---- */

typedef struct cb_session cb_session;

struct cb_session_params {
    int n_ctx; /* capacity in tokens; 0 = the context length that the model was trained with */
    int chunk; /* tokens multiplied with a weight matrix at once in prefill; 0 = 512 */
    const char *type_k;  /* type of keys: a name from cb_kv_type_at(), NULL = "f16"; kivi types may
                            end in :NEWEST:GROUP:FIRST, the newest tokens that stay f16 (128), the
                            numbers that share a step (32, or 64 or 128), and the first tokens that
                            stay f16 as well (0); "planes" goes with policy sieve alone */
    const char *type_v;  /* type of values */
    const char *policy;  /* NAME[:key=value,...], NAME from cb_policy_at(); NULL = that of the
                            model: struct cb_model_info */
    const char *prefill; /* the same, NAME from cb_prefill_at(); NULL = "dense" */
    int act_bits; /* bits of activations when tokens are decoded: 16, or 8 for faster batches of
                     many sessions at some loss of quality; 0 = 16. Prompts always use 8 */
    /* For models with layers that remember without keys: most bytes of checkpoints, copies of what
     * these layers remember, at which a timeline can be cut back; 0 = 1 GiB, 1 = none */
    uint64_t checkpoint_bytes;
    int guest; /* 1: the policy was sent by a stranger. An option that names a file (preset=) takes
                  the name of one in the model's preset_dir, and no path */
    int expand_latents; /* 1: prompts of 512 tokens and more of latent attention (DeepSeek) read
                           keys and values of each head, where that is faster. Their tokens are
                           rounded otherwise than those of shorter prompts, so what follows a cut
                           or another prompt is near what one prompt gives, no longer to the bit */
};

struct cb_memory {
    uint64_t weights_bytes;           /* weights as in the file, and the output matrix's preview */
    uint64_t kv_bytes;                /* keys and values held by the bank now */
    uint64_t kv_full_bytes;           /* the size if every token were kept in f16 */
    uint64_t kv_peak_bytes;           /* largest kv_bytes so far */
    uint64_t kv_read_bytes_per_token; /* for the last decoded token; 0 after a prompt */
    uint64_t scratch_bytes;           /* activations and work space */
    uint64_t shared_bytes;  /* the part of weights and scratch that all sessions of a model share;
                               count it once */
    int kept_min, kept_max; /* fewest and most tokens that a layer holds */
    /* The working set's limit of a device with memory of its own, and what weights, work space and
     * mirrored keys and values take of it (as planned, or now). 0 where memory is the host's. */
    uint64_t device_limit_bytes, device_weights_bytes, device_work_bytes, device_kv_bytes;
    /* So far, of all sessions: the most in use, bytes copied to and from the device, stored rows
     * that attention read there and, left over, on the CPU; the same of blocks of sketched keys
     * that were searched; and bytes of weights that do not fit, which were copied there for
     * prompts. 0 in a plan. */
    uint64_t device_peak_bytes, device_in_bytes, device_out_bytes, device_rows, host_rows;
    uint64_t device_sketches, host_sketches, device_weights_in_bytes;
    /* The same for the last decoded token (0 after a prompt), of stored keys and values alone:
     * bytes copied to the device and back, rows read there and on the CPU; chosen rows that were
     * not there, the packed copies in which they came, and the seconds in which the host packed
     * them. A row is a slot of a KV head. A plan with stream_kv has the bytes copied to the device.
     */
    uint64_t device_kv_in_bytes_per_token, device_kv_out_bytes_per_token;
    uint64_t device_rows_per_token, host_rows_per_token;
    uint64_t device_gathered_rows_per_token, device_gathers_per_token;
    double device_gather_s_per_token;
    double prompt_density; /* share of a dense prompt's pairs of query and token that attention has
                              read in the prompts so far; 0: no prompt yet, or in a plan */
    int at_most; /* 1: kv_bytes of a plan is an upper bound, because the text decides how many
                    tokens are kept */
    uint64_t kv_beside_bytes; /* of kv_bytes, what is neither a key nor a value: steps of prepacked
                                 blocks, sketches, positions and scores */
    uint64_t
        head_prune_bytes; /* of weights_bytes, the preview of the output matrix, where it pays */
    /* What layers without keys remember, and the same as it was before the prompt in progress; and
     * checkpoints of it. Beside kv_bytes and scratch_bytes; 0: all layers have keys */
    uint64_t state_bytes, checkpoint_bytes;
};

CB_API struct cb_session_params cb_session_defaults(void); /* all zero */
/* Whether some model could have a session with these settings on this device (NULL: any): there are
 * such names, and options are in their ranges. Otherwise the error that opening a model or a
 * session would give. n_ctx, chunk and act_bits are not looked at. */
CB_API int cb_settings_check(const struct cb_session_params *params, const char *device);
/* params may be NULL: the defaults. *out is NULL after a failure; the caller closes it before the
 * model. CB_EARG: params; CB_EUNSUPPORTED: settings that cannot be combined; CB_ENOMEM. */
CB_API int cb_session_open(cb_model *model, const struct cb_session_params *params,
                           cb_session **out);
CB_API void cb_session_close(cb_session *session); /* NULL is allowed */
CB_API void cb_session_clear(cb_session *session); /* back to an empty timeline */

/* Memory that a prompt of n_prompt tokens and n_gen generated tokens will need, computed before
 * they are run. CB_EFULL: they do not fit. */
CB_API int cb_session_plan(const cb_session *session, int n_prompt, int n_gen,
                           struct cb_memory *out);
CB_API void cb_session_memory(const cb_session *session, struct cb_memory *out);
CB_API int cb_session_len(const cb_session *session);   /* tokens in the timeline */
CB_API int cb_session_n_ctx(const cb_session *session); /* most tokens that are kept */
/* Ids of the tokens in the timeline, [cb_session_len()], dropped ones included. They belong to the
 * session and are valid until the next call on it; NULL before the first feed. */
CB_API const int32_t *cb_session_tokens(const cb_session *session);
/* The tokens that KV head `head` of a layer holds, as positions in the timeline, ascending: their
 * number; the first cap of them go to pos[cap] (NULL if cap is 0). A layer that reads the keys of
 * an earlier one has that one's. CB_EARG: no such layer or KV head; a layer without keys has none.
 * CB_EUNSUPPORTED: the tokens are dealt out to several processes. */
CB_API int cb_session_kept(const cb_session *session, int layer, int head, int32_t *pos, int cap);
/* A note for the user about the policy, such as a default that was not calibrated for this model;
 * "" when there is none. It also goes to the log. The text belongs to the session. */
CB_API const char *cb_session_note(const cb_session *session);

/* done of total tokens; where the policy has the prompt repeated (kvzip), the repetition counts
 * too. The whole prompt passes one layer before the next one begins; finishing one of n layers
 * counts as 1/n of each token. A non-zero return stops the prefill with CB_ECANCEL. */
typedef int (*cb_progress_fn)(void *arg, int64_t done, int64_t total);
/* logits[n_vocab] after token i of the prompt; valid during the call. */
typedef void (*cb_logits_fn)(void *arg, int i, const float *logits);
/* state[n_embd] of token i of the prompt after the last layer and its norm, from which logits
 * are computed; valid during the call. */
typedef void (*cb_states_fn)(void *arg, int i, const float *state);

struct cb_prefill {
    cb_progress_fn progress; /* NULL = none */
    void *progress_arg;
    cb_logits_fn logits; /* called for tokens from logits_from on, in order; NULL = only the last
                            token's logits are computed */
    void *logits_arg;
    int logits_from;
    cb_states_fn states; /* called for all tokens, in order, and no logits are computed; NULL =
                            none. CB_EARG: logits are asked for too */
    void *states_arg;
};

CB_API struct cb_prefill cb_prefill_defaults(void); /* all zero */
/* Appends tokens[n], n >= 1, to the timeline. `how` may be NULL: the defaults. CB_EFULL: they do
 * not fit; CB_EARG: n or an id is out of range; CB_ECANCEL; CB_ENOMEM. After a failure the session
 * is as before the call, or empty if the policy had already dropped tokens. CB_EIO: the session is
 * empty, because the file of the saved bank that it was loaded from became shorter or was
 * overwritten. */
CB_API int cb_session_prefill(cb_session *session, const int32_t *tokens, int n,
                              const struct cb_prefill *how);
/* Appends one token. Fails as a prefill does. */
CB_API int cb_session_decode(cb_session *session, int32_t token);
/* Appends tokens[n], to the bit as n calls of cb_session_decode() do, but the weights are read
 * once. *logits[n][n_vocab] follow each of them; they are valid until the next call on the session.
 * cb_session_truncate() can take tokens back. n is at most the session's chunk, and 17 where layers
 * choose for others. CB_EUNSUPPORTED, with nothing changed: the policy
 * takes one token at a time. Fails as a prefill does. */
CB_API int cb_session_decode_all(cb_session *session, const int32_t *tokens, int n,
                                 const float **logits);
/* logits[n_vocab] that follow the last token; they belong to the session and are valid until the
 * next call on it. */
CB_API const float *cb_session_logits(const cb_session *session);
/* From the next decode on, only the k largest logits are exact; the others may be smaller
 * approximations. k = 0: all are exact, as in a new session. In a small model with a large
 * vocabulary this saves a fifth of the bytes read for a token. The first call on a model makes a
 * preview of the output matrix (CB_ENOMEM). CB_EARG: k is negative. */
CB_API int cb_session_want_top(cb_session *session, int k);

/* ---- embeddings ---- */

struct cb_embedding {
    enum cb_pooling pooling;
    int normalize; /* 1: the embedding's length is made 1 */
};

/* The embedding of tokens[n] -> out[n_embd]. Texts for it are tokenized with CB_TOK_BOS and
 * CB_TOK_EOS. how may be NULL: the defaults. The session is cleared and reads the tokens as a
 * prompt; it has no logits then. CB_EARG, CB_EUNSUPPORTED: the pooling; else fails as a prefill
 * does. */
CB_API int cb_session_embed(cb_session *session, const int32_t *tokens, int n,
                            const struct cb_embedding *how, float *out);

/* ---- prompts in steps, batches ---- */

/* cb_session_prefill() in short steps, so that other sessions can be fed between them: each step
 * takes one chunk of tokens through one layer. begin() copies *how, and the tokens may be freed
 * once it returns. step() returns 1 while work is left and 0 when the prompt is done, with the same
 * logits as cb_session_prefill(). Until then the session takes no other tokens; cancel() or
 * cb_session_clear() leaves it as a failed prefill does. */
CB_API int cb_session_prefill_begin(cb_session *session, const int32_t *tokens, int n,
                                    const struct cb_prefill *how);
CB_API int cb_session_prefill_step(cb_session *session);
CB_API void cb_session_prefill_cancel(cb_session *session);
/* Appends tokens[i] to sessions[i], for n different sessions of one model with any policies and
 * types. The logits are those of n calls of cb_session_decode(), to the bit, but the weights are
 * read once for all sessions. All logits are exact, whatever cb_session_want_top() says. When a
 * call fails, no session has its token, and sessions whose policy drops tokens are empty; after
 * CB_EIO those whose saved bank has gone are empty, and the others have their tokens. A batch
 * larger than the first session's chunk runs in chunks, as does one whose act_bits differ: sessions
 * of the chunks before the failure have their tokens. */
CB_API int cb_decode_batch(cb_session *const *sessions, const int32_t *tokens, int n);

/* ---- timelines that split, and go back ---- */

/* A copy of `session` - tokens, bank, policy state, logits - that continues independently, to the
 * bit as `session` would. It takes as much memory again. *out is NULL after a failure (CB_ENOMEM;
 * CB_EARG: a prompt is in progress); the caller closes it. */
CB_API int cb_session_fork(const cb_session *session, cb_session **out);
/* Keeps the first n tokens, 0 to cb_session_len(), and forgets the others: the timeline is as
 * if they had never been fed. If n lies in the last prompt, the first n tokens count as one prompt.
 * There are no logits before the next feed. CB_EUNSUPPORTED, with nothing changed: the policy has
 * dropped or scored tokens since; n = 0 is always possible. With kivi types and planes, quantised
 * tokens stay quantised. CB_EARG: n. */
CB_API int cb_session_truncate(cb_session *session, int n);

/* ---- saved banks ---- */

/* Writes all that `session` remembers - tokens, bank, policy state, logits - to the file `path`,
 * ctxbank-bank(5). It is written beside, synced and renamed: at any moment `path` is what it was
 * before, or complete. The first save or load of a model reads its weights once, for their hash.
 * CB_EIO; CB_ENOMEM; CB_EARG: a prompt is in progress, or `path` is no regular file;
 * CB_EUNSUPPORTED: a policy of the caller's own. */
CB_API int cb_session_save(const cb_session *session, const char *path);
/* Opens a session from such a file. It continues, to the bit, as the saved one would have, if the
 * instruction set is the same; blocks prepacked for another one are unpacked, rounded. Large
 * areas are mapped copy-on-write: processes share them until they write. A file that becomes
 * shorter meanwhile raises SIGBUS: cb_model_page_lost(). n_ctx: capacity in tokens; 0 = as saved.
 * CB_EFORMAT: damaged; CB_EUNSUPPORTED: of another model, of a newer format, or prepacked for an
 * unknown instruction set; CB_EFULL: n_ctx is too small; CB_EIO; CB_ENOMEM. */
CB_API int cb_session_load(cb_model *model, const char *path, int n_ctx, cb_session **out);
/* The same with another policy than it was saved with, or with other options: NAME[:key=value,...],
 * NULL = as saved. Policies that drop nothing store the same rows: full, sieve, quest and omnikv
 * (without a window of queries), with one type of keys and values. Sketches and bounds are made of
 * the rows, and prepacked blocks unpacked where a policy reads single rows. CB_EUNSUPPORTED: the
 * two policies do not share rows. */
CB_API int cb_session_load_as(cb_model *model, const char *path, int n_ctx, const char *policy,
                              cb_session **out);
/* What the file says about itself, a JSON object -> *json, ended by NUL; the caller frees it.
 * Only the header and this text are checked. */
CB_API int cb_bank_describe(const char *path, char **json);
CB_API int cb_bank_verify(const char *path); /* compares every area with its checksum */

/* ---- a folder of banks ---- */

/* Remembers prompts in files, so that a prompt whose beginning was computed before, by any process,
 * continues from there. Results are, to the bit, those of a prompt computed from its first token.
 * Files are found by model, settings and exact tokens. Where slots are dropped or quantised, a file
 * serves only the whole prompt that it was made from; elsewhere every prompt that shares 128 tokens
 * or more of its beginning, and common beginnings are stored once. Several threads and processes
 * may use a folder.
 */
typedef struct cb_bank_dir cb_bank_dir;

struct cb_bank_dir_params {
    uint64_t bytes_max; /* of all files that the folder remembers; 0 = no limit. The least worth
                           give way: by use, work that they save, bytes, and time */
};

/* Opens a folder and makes it, for its owner alone, if it is missing. params may be NULL: the
 * defaults. CB_EIO; CB_ENOMEM. */
CB_API int cb_bank_dir_open(const char *path, const struct cb_bank_dir_params *params,
                            cb_bank_dir **out);
CB_API void cb_bank_dir_close(cb_bank_dir *dir); /* NULL is allowed */
/* Opens a session that holds the longest remembered beginning of tokens[n]: *n_hit of them, 0 for
 * none. The caller feeds the others; if there are none, the logits are there. A folder or
 * file that cannot be read is a note in the model's log, and so is a file that contradicts itself,
 * which is renamed to NAME.damaged; the session is new then. Fails only as cb_session_open() does.
 */
CB_API int cb_bank_dir_find(cb_bank_dir *dir, cb_model *model,
                            const struct cb_session_params *params, const int32_t *tokens, int n,
                            cb_session **out, int *n_hit);
/* Remembers the session's timeline. Call it after a prompt: a timeline with generated tokens, one
 * shorter than 128 tokens, or one that is there already, is left out without an error, as is one
 * that exceeds the limit alone, or a session's with expand_latents, which cb_bank_dir_find()
 * ignores. CB_EIO: the folder cannot be written; nothing is lost. CB_EARG: a prompt is in progress.
 * CB_ENOMEM. */
CB_API int cb_bank_dir_put(cb_bank_dir *dir, const cb_session *session);

/* ---- one prompt for many policies ---- */

/* 1: `follower` can use the keys, values and queries of a prompt that `lead` computes. Both must be
 * empty sessions of one model with the same types and the same chunk, and attend to the whole
 * prompt densely. */
CB_API int cb_session_can_follow(const cb_session *follower, const cb_session *lead);
/* Runs cb_session_prefill() of tokens[n_tok] on `lead` and feeds follower[n] from it; each follower
 * costs only its own storing and scoring. Follower i ends up as if it had been fed the first
 * upto[i] tokens, 1 to n_tok (upto NULL: all). A follower that was fed fewer than all has no logits
 * before its next feed. CB_EARG: a session cannot follow. Other failures are those of a prefill,
 * and leave the followers empty. During the call all sessions belong to the calling thread. */
CB_API int cb_session_prefill_shared(cb_session *lead, cb_session *const *follower, const int *upto,
                                     int n, const int32_t *tokens, int n_tok,
                                     const struct cb_prefill *how);

/* ---- sampling ---- */

/* Added to the logit of a token */
struct cb_logit_bias {
    int32_t token;
    float bias; /* -INFINITY: never, unless nothing else is left */
};

struct cb_sampler_params {
    uint64_t seed;
    float temp;                                /* 0 = the largest logit */
    int top_k;                                 /* 0 = off */
    float top_p, min_p;                        /* 1 and 0 = off */
    float repeat_penalty;                      /* 1 = off */
    float frequency_penalty, presence_penalty; /* 0 = off */
    int penalty_last_n; /* last tokens that penalties consider; 0 = off, -1 = all */
    float typical_p;    /* 0 or 1 = off. Locally typical sampling (Meister et al. 2022) */
    /* Exclude top choices: with this probability, all tokens of at least xtc_threshold but the
     * least likely of them are dropped. 0 = off; a threshold above 0.5 does nothing */
    float xtc_probability, xtc_threshold;
    /* Don't repeat yourself: a token that would prolong a repetition of n tokens, n at least
     * dry_allowed_length, loses dry_multiplier * dry_base^(n - dry_allowed_length). Repetitions are
     * looked for in the last dry_last_n tokens, and do not reach across a token of
     * dry_breaker[n_dry_breaker]. multiplier 0 = off */
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;
    const int32_t *dry_breaker;
    int n_dry_breaker;
    /* 2 = Mirostat 2.0 (Basu et al. 2021) in place of top_k, typical_p, top_p, min_p and XTC: the
     * surprise of a token is held at tau bits, with learning rate eta. 0 = off */
    int mirostat;
    float mirostat_tau, mirostat_eta;
    const struct cb_logit_bias *bias; /* [n_bias] */
    int n_bias;
};

typedef struct cb_sampler cb_sampler;
/* temp 0.8, top_k 40, top_p 0.95, min_p 0.05, no penalties, penalty_last_n 64, seed 0; typical_p,
 * XTC, DRY and Mirostat off, with xtc_threshold 0.1, dry_base 1.75, dry_allowed_length 2,
 * dry_last_n 4096, tau 5, eta 0.1. Zeroed params are not the defaults. */
CB_API struct cb_sampler_params cb_sampler_defaults(void);
/* params may be NULL: the defaults. Their lists are copied. CB_EARG: a value that is not a number
 * or out of range. */
CB_API int cb_sampler_new(const struct cb_sampler_params *params, int n_vocab, cb_sampler **out);
CB_API void cb_sampler_free(cb_sampler *sampler);                  /* NULL is allowed */
CB_API void cb_sampler_accept(cb_sampler *sampler, int32_t token); /* the penalties count it */
/* How many of the largest logits a sampler with these params chooses from; 0: all. For
 * cb_session_want_top(). */
CB_API int cb_sampler_top(const struct cb_sampler_params *params);
/* logits[n_vocab] -> a token id. Negative, with a grammar alone: the status of a failure, such as
 * CB_EUNSUPPORTED where no token of the vocabulary continues the text. */
CB_API int32_t cb_sampler_pick(cb_sampler *sampler, const float *logits);
/* An independent copy that continues as `sampler` would: draws, penalties, place in the grammar.
 * *out is NULL after a failure (CB_ENOMEM). */
CB_API int cb_sampler_fork(const cb_sampler *sampler, cb_sampler **out);

/* ---- grammars ---- */

/* What a generated text must look like, ctxbank-grammar(7). Not changed once made: samplers of any
 * threads may share one. */
typedef struct cb_grammar cb_grammar;
/* text: GBNF, rules with a rule "root"; a JSON schema, where "{}" allows any JSON value and
 * {"type": "object"} any object; or a regular expression for the whole text. *out is NULL after a
 * failure. CB_EARG: the text is wrong, and cb_error() says where; CB_EUNSUPPORTED: it is too large,
 * or asks for what is not supported; CB_ENOMEM */
CB_API int cb_grammar_new_gbnf(const char *text, cb_grammar **out);
CB_API int cb_grammar_new_json_schema(const char *text, cb_grammar **out);
CB_API int cb_grammar_new_regex(const char *text, cb_grammar **out);
CB_API void cb_grammar_free(cb_grammar *grammar); /* NULL is allowed */
/* From now on cb_sampler_pick() gives tokens that the grammar allows after those that
 * cb_sampler_accept() takes from now on, so set it after the prompt. Tokens that end a turn are
 * allowed where the text may end, and other special tokens never. NULL: no grammar. Model and
 * grammar must outlive the sampler, or another call here. All logits must be exact: 0 for
 * cb_session_want_top(). The first call on a model sorts its vocabulary (about 0.1 s for 150,000
 * tokens). CB_EARG: the sampler is for a vocabulary of another size; CB_EUNSUPPORTED; CB_ENOMEM */
CB_API int cb_sampler_set_grammar(cb_sampler *sampler, cb_model *model, const cb_grammar *grammar);

/* ---- speculation ---- */

/* Decodes drafts together with the next token. They are copied from the timeline (prompt look-up),
 * or are a second, smaller model's guesses. Tokens that the caller does not choose are taken back:
 * the text is that of a loop without drafts. Drafts pause where they cost more time than they save.
 * Meanwhile only these functions may change the session, and its own length and tokens may include
 * drafts. */
typedef struct cb_speculation cb_speculation;
struct cb_speculation_counts {
    int64_t drafted, accepted;             /* tokens */
    int64_t model_drafted, model_accepted; /* those of them that the draft model guessed */
    int64_t mtp_drafted, mtp_accepted;     /* and that the model's own head guessed */
};

/* NULL if the session can speculate; else the reason why not. */
CB_API const char *cb_speculation_why_not(const cb_session *session);
/* Drafts of up to `most` tokens, 0 (never) to 16. CB_EUNSUPPORTED: the policy drops tokens or
 * scores them as they come, or remembers queries (cb_speculation_why_not()); CB_EARG; CB_ENOMEM.
 * An idle session gets the work space of such drafts, and its plans count it. */
CB_API int cb_speculation_new(cb_session *session, int most, cb_speculation **out);
CB_API void cb_speculation_free(cb_speculation *speculation); /* NULL is allowed */
/* Most tokens of a draft by the model's own head (cb_model_params.draft_mtp), which guesses where
 * the timeline has nothing to copy; 0: the session has none, since the file has none, it is not
 * used, or the session cannot speculate. Any speculation uses it, whatever `most` is. */
CB_API int cb_session_draft_mtp(const cb_session *session);
/* A session of the draft model, which guesses where the timeline has nothing to copy; NULL: no
 * more. The caller closes it later than the speculation. It reads the timeline by itself, between
 * tokens, for no longer than a token takes; if its context is smaller, it follows the end. Several
 * speculations of one thread may use it in turn. If it fails, the log says so and drafting
 * ends. A session of an assistant (Gemma 4's) reads the keys of the timeline's session in place of
 * the timeline, so its context must be as large; guesses begin after the first token that is
 * decoded from here on. CB_EARG: cb_model_drafts_for(); CB_EUNSUPPORTED: tokens of its policy
 * cannot be taken back, or the keys that an assistant reads are not all there, or not on this
 * machine's host. */
CB_API int cb_speculation_set_draft(cb_speculation *speculation, cb_session *draft);
/* In place of cb_session_logits(), cb_session_decode() and cb_session_len(). */
CB_API const float *cb_speculation_logits(const cb_speculation *speculation);
CB_API int cb_speculation_decode(cb_speculation *speculation, int32_t token);
CB_API int cb_speculation_len(const cb_speculation *speculation);
/* Takes back the tokens of an unfinished draft. The session is the caller's again. */
CB_API int cb_speculation_end(cb_speculation *speculation);
CB_API void cb_speculation_get_counts(const cb_speculation *speculation,
                                      struct cb_speculation_counts *out);

/* ---- generating ---- */

/* text[len] that was generated, whole characters only. A non-zero return ends the answer. */
typedef int (*cb_text_fn)(void *arg, const char *text, size_t len);
/* Generates up to n tokens after a prompt and appends them to the timeline. The answer ends before
 * a token that ends the turn, and where the context is full. text may be NULL. Returns the number
 * of tokens. CB_EARG: n < 0, or an empty session; else fails as a decode does, and the tokens
 * generated before stay in the timeline. */
CB_API int cb_session_generate(cb_session *session, cb_sampler *sampler, int n, cb_text_fn text,
                               void *arg);

#ifdef __cplusplus
}
#endif
#endif
