/* SPDX-License-Identifier: MIT */
/* cmd.h - shared by the sub-commands. A command is one file with one const struct cmd, declared
 * here and listed in cmd_table.c. */
#ifndef CMD_H
#define CMD_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/options/opts.h"
#include "cli/output/progress.h"
#include "ctxbank.h"

extern const struct cmd cb_cmd_bank_list;
extern const struct cmd cb_cmd_bank_rm;
extern const struct cmd cb_cmd_bank_save;
extern const struct cmd cb_cmd_bank_show;
extern const struct cmd cb_cmd_bank_verify;
extern const struct cmd cb_cmd_bench;
extern const struct cmd cb_cmd_calibrate_density;
extern const struct cmd cb_cmd_calibrate_heads;
extern const struct cmd cb_cmd_calibrate_filter;
extern const struct cmd cb_cmd_calibrate_lazy;
extern const struct cmd cb_cmd_calibrate_pyramid;
extern const struct cmd cb_cmd_calibrate_similarity;
extern const struct cmd cb_cmd_chat;
extern const struct cmd cb_cmd_complete;
extern const struct cmd cb_cmd_embed;
extern const struct cmd cb_cmd_eval_2stage;
extern const struct cmd cb_cmd_eval_attention;
extern const struct cmd cb_cmd_eval_continuation;
extern const struct cmd cb_cmd_eval_file;
extern const struct cmd cb_cmd_eval_kld;
extern const struct cmd cb_cmd_eval_lazy;
extern const struct cmd cb_cmd_eval_longbench;
extern const struct cmd cb_cmd_eval_needle;
extern const struct cmd cb_cmd_eval_passkey;
extern const struct cmd cb_cmd_eval_perplexity;
extern const struct cmd cb_cmd_eval_ruler;
extern const struct cmd cb_cmd_info;
extern const struct cmd cb_cmd_quantize;
extern const struct cmd cb_cmd_run;
extern const struct cmd cb_cmd_serve;
extern const struct cmd cb_cmd_tokenize;

/* ---- cmd.c: from argv to an exit status ---- */

extern const struct cmd *const cb_cmd_all[]; /* cmd_table.c: all of the above, and NULL */
/* run: what runs a command with its options (cb_ranked_run) */
int cb_cmd_main(const struct cmd *const *table, int (*run)(struct opts *o), int argc, char **argv);
const struct cmd *const *cb_cmd_table(void); /* main()'s */

/* ---- app.c: model and session as the options say ---- */

/* The processes of --split, which open one model */
struct ranked {
    struct ranks *team;
    int n_model; /* opened so far */
};

struct engine {
    const char *path;
    cb_model *model;
    struct cb_model_info info;
    cb_session *session;
    struct cb_session_params chosen; /* of the session, as the options and auto make them */
    int n_ctx;                       /* of the session */
    unsigned noted;                  /* a bit for each choice of auto that the user was told of */
    double load_s;
    struct cb_adapter *adapter; /* [n_adapter] of --lora and --lora-scaled */
    int n_adapter;
    cb_grammar *grammar;   /* of --grammar and its like, or NULL */
    cb_bank_dir *dir;      /* of --bank-dir, or NULL */
    int no_dir;            /* 1: it could not be opened */
    int is_new;            /* 1: the session is as cb_context_begin() opened it, without a prompt */
    int n_begun;           /* tokens that the session held when cb_context_begin() returned */
    cb_model *draft_model; /* of --draft-model, or NULL */
    cb_session *draft;     /* of it, once it is needed */
    struct ranks *team;    /* of --split, which sessions are split over; or NULL */
};

/* user_cache.c: a folder of the user's cache, as the XDG base directory specification has it; it is
 * made where it is missing. NULL: there is no home, or it cannot be made. */
const char *cb_user_cache(const char *name, char *path, size_t size);
int cb_engine_open(const struct opts *o, struct engine *e); /* the model alone */
/* The same of another file. scale: of the adapters, in the order of their options; NULL: theirs */
int cb_engine_open_file(const struct opts *o, const char *path, const float *scale,
                        struct engine *e);
/* The adapters of --lora and --lora-scaled, also those of scale 0; the caller frees *out. */
int cb_adapters_of(const struct opts *o, struct cb_adapter **out, int *n);
int cb_engine_open_threads(const struct opts *o, int n_threads, struct engine *e); /* 0: default */
/* --policy, or the model's default. Those of commands that compare several -> *n */
const char *cb_engine_policy(const struct opts *o, const struct engine *e);
/* What is wrong with the options of models and sessions, whatever the model */
int cb_engine_check(const struct opts *o);
const char *const *cb_engine_policies(const struct opts *o, const struct engine *e, int *n);
/* Opens the session and closes the previous one. n_ctx 0 = the model's training length. */
int cb_engine_session(const struct opts *o, struct engine *e, const char *policy, int n_ctx);
/* Tells the session how many of the largest logits these options' sampler needs; short answers
 * compute all. */
int cb_engine_sampling(const struct opts *o, struct engine *e);
int cb_engine_draft(const struct opts *o); /* most tokens a draft; 0: no drafts */
/* Opens e->draft, once, if there is a draft model: for sessions of n_ctx tokens. */
int cb_engine_draft_session(const struct opts *o, struct engine *e, int n_ctx);
/* As the options say, with the given policy; auto becomes the one that is chosen. */
int cb_engine_params(const struct opts *o, struct engine *e, const char *policy, int n_ctx,
                     struct cb_session_params *out);

/* ---- auto_policy.c ---- */

int cb_auto_is(const char *policy);    /* 1: "auto", with or without limits */
int cb_auto_check(const char *policy); /* what is wrong with its limits */
/* Replaces the policy auto of *p, and the types of keys and values unless the options name them;
 * n_ctx 0 becomes the model's. What was chosen and why is a note. CB_EARG: the limits exclude
 * everything. */
int cb_auto_choose(const struct opts *o, struct engine *e, struct cb_session_params *p);
void cb_engine_close(struct engine *e);
const char *cb_need_model(const struct opts *o); /* its path, or NULL and a usage error set */
/* Draws the seed when it is -1 */
int cb_sampler_from(const struct opts *o, struct cb_sampler_params *out);

enum cb_pooling cb_pooling_of(const struct opts *o); /* embed.c: --pooling */

/* ---- sampling.c: what the sampler needs besides ---- */

struct sampling {
    struct cb_sampler_params p;
    struct cb_logit_bias *bias; /* [p.n_bias] */
    int32_t *breaker;           /* [p.n_dry_breaker] */
};

/* Caller ends with cb_sampling_close(), also after a failure. */
int cb_sampling_open(const struct opts *o, const struct engine *e, struct sampling *s);
void cb_sampling_close(struct sampling *s);

/* ---- context.c: where a timeline begins ---- */

/* The policy that --bank is opened with; NULL: the one that it was saved with */
const char *cb_bank_policy(const struct opts *o);
/* Opens the session of a new timeline, which may hold tokens already: those of --bank, whose
 * options must not contradict, or what --bank-dir remembers of the prompt ids[*n]. What the prompt
 * shares with them is taken out of it. n_ctx 0: as the bank was saved, or the model's training
 * length. */
int cb_context_begin(const struct opts *o, struct engine *e, int n_ctx, int32_t *ids, int *n);
/* After a prompt: --bank-dir remembers it. A failure is a note. */
void cb_context_remember(struct engine *e);

/* ---- text.c ---- */

/* Reads whole files and prompts; the caller frees them with cb_buf_free(). */
int cb_read_file(const char *path, struct buf *out); /* "-" is standard input */
/* A document for a chat: what has no text, or a NUL byte, is refused with the file's name. */
int cb_read_document(const char *path, struct buf *out);
/* The prompt: the texts of -p and the files of -f in their order. A non-empty `between` replaces
 * the line ends between two of them; the files are documents then, unless a bank has the text. */
int cb_read_prompt(const struct opts *o, const char *between, struct buf *out);
/* Adds one of them, an -p or -f. */
int cb_read_piece(const struct opts *o, const struct given *g, struct buf *out);
int cb_put_text(const struct opts *o, const char *text, struct buf *out); /* with -e: unescaped */
/* The system message -> *text, or NULL. Caller frees out, which may hold it. */
int cb_read_system(const struct opts *o, struct buf *out, const char **text);

/* ---- generate.c: prefill with a bar, then token by token ---- */

struct generation {
    int32_t *ids; /* [n] generated, without the end token */
    int n;
    int32_t end;               /* the end token that was fed (keep_turn), or -1 */
    int full;                  /* 1: ended because the context is full */
    int stopped_text;          /* 1: ended by a --stop text; the timeline holds more than `text` */
    struct buf text;           /* without the stop text */
    const char *finish_reason; /* "stop", "length" or "interrupt" */
    uint64_t seed;             /* of the sampler */
    int n_prompt;              /* tokens that were read */
    double prompt_s, predicted_s;
    int n_step; /* decoded tokens that predicted_s covers */
    struct cb_speculation_counts drafts;
};

/* Takes text as it comes; a negative status ends the generation. */
typedef int (*emit_fn)(void *arg, const char *s, size_t n);

struct generate {
    struct engine *e;
    const struct opts *o;
    int max_tokens; /* -1 = until the end or the context is full */
    emit_fn emit;   /* or NULL */
    void *emit_arg;
    int keep_turn; /* 1 = the last token and a token that ends the turn are fed too */
    int fed;       /* 1 = the prompt is in the session: only the penalties count it */
    int again;     /* answers to the same prompt before this one: each gets a seed of its own */
};

int cb_check_fit(const struct engine *e, int n); /* do n more tokens fit? the error has both */
/* The same for cb_generate() and cb_prefill_bar(), which feed a prompt in pieces where the policy
 * drops tokens without end. */
int cb_check_pieces(const struct engine *e, int n);
int cb_prefill_bar(struct engine *e, const struct opts *o, const char *label, const int32_t *ids,
                   int n, const struct cb_prefill *how);
/* CB_OK also after an interrupt: see finish_reason. Free *out in any case. */
int cb_generate(const struct generate *g, const int32_t *prompt, int n, struct generation *out);
void cb_generation_free(struct generation *g);
void cb_note_cut(const struct opts *o, const struct generation *g); /* -n has ended the answer */

/* interrupt.c: an error ends the program if a page of the mapped file cannot be read */
void cb_bus_error_catch(const char *path);
/* A saved bank that a session of m has mapped is an error of this session instead, until the model
 * is removed, which comes before it is closed. Any thread may call; NULL is allowed. */
void cb_bus_error_add(cb_model *m);
void cb_bus_error_remove(cb_model *m);
/* SIGINT, SIGTERM and SIGHUP set a flag, a second one kills. */
void cb_interrupt_catch(void);
void cb_interrupt_clear(void);
/* The same for a conversation in a terminal: SIGINT may come any number of times, and signals make
 * *fd readable until it is read. forget(): the signal has been dealt with. */
int cb_interrupt_watch(int *fd);
void cb_interrupt_forget(void);
void cb_interrupt_wake(void);    /* for other signal handlers */
int cb_interrupted(void);        /* the signal, or 0 */
int cb_interrupt_status(int rc); /* 128 + the signal if rc says that it stopped the work, else rc */

/* ---- out.c ---- */

/* Writes whole characters at once, raw unless standard output is a terminal: there control
 * characters other than newline and tab become '?'. */
int cb_out_text(const char *s, size_t n);
void cb_out_plain(const char *s); /* a name from a file, without control characters */
int cb_out_flush(void);           /* CB_EIO if standard output cannot be written */

/* ---- report.c ---- */

json_t *cb_json_timings(const struct engine *e, const struct generation *g);
json_t *cb_json_memory(const struct cb_memory *m);     /* with rss_peak_bytes */
json_t *cb_json_engine_memory(const struct engine *e); /* of the session and the draft model's */
int cb_json_print(json_t *j);                          /* on standard output; drops the reference */
uint64_t cb_rss_peak_bytes(void);
static inline double cb_mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}
/* Weights, bank, work space, states and their checkpoints, as planned */
uint64_t cb_memory_total(const struct cb_memory *m);
/* A plan, with that of a draft model or NULL, and what this machine has free */
void cb_print_memory(const struct cb_model_info *info, const struct cb_memory *m,
                     const struct cb_memory *draft);
void cb_print_uncounted(const struct cb_model_info *info);
int cb_print_plan(const struct opts *o, struct engine *e, int n_prompt, int n_gen);
/* A note where the session's context is longer than the trained one */
void cb_note_long_context(const struct engine *e);
void cb_note_timings(const struct engine *e, const struct generation *g);

#endif
