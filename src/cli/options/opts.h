/* SPDX-License-Identifier: MIT */
/* opts.h - the table of all options, from which the parser, --help, manual pages and
 * completion are made. The library does not see it: commands fill the library's parameters from
 * it. */
#ifndef OPTS_H
#define OPTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Wrong usage: with this status of a command, the program exits with 2. */
enum { CB_USAGE = -64 };

enum takes {
    TAKES_NOTHING,
    TAKES_INT,  /* whole number; K, M, G multiply by 1024, 1024^2, 1024^3 */
    TAKES_REAL, /* decimal number */
    TAKES_TEXT,
    TAKES_FILE,     /* read, or a folder */
    TAKES_NEW_FILE, /* written */
    TAKES_CHOICE,   /* one of `choices` */
    TAKES_INTS,     /* whole numbers with commas between */
    TAKES_SCALED    /* a file, then a number: two arguments, or FILE:NUMBER; two texts */
};

/* Options come in sets; a command names the sets that it takes. The order is that of --help, where
 * sets of one title stand together. */
enum opt_set {
    SET_OWN_RUN = 1 << 0,
    SET_OWN_TOKENIZE = 1 << 1,
    SET_OWN_INFO = 1 << 2,
    SET_OWN_BENCH = 1 << 3,
    SET_OWN_PERPLEXITY = 1 << 4,
    SET_OWN_CONTINUATION = 1 << 5,
    SET_PAIR = 1 << 6, /* --context and --target */
    SET_OWN_NEEDLE = 1 << 7,
    SET_OWN_RULER = 1 << 8,
    SET_OWN_2STAGE = 1 << 9,
    SET_PICK = 1 << 10, /* --tasks */
    SET_MADE = 1 << 11, /* lengths of generated items */
    SET_TASKS = 1 << 12,
    SET_CALIBRATE = 1 << 13,
    SET_TRIAL = 1 << 14,          /* analyses that try candidates */
    SET_OWN_SIMILARITY = 1 << 15, /* --theta, --saving */
    SET_PROMPT = 1 << 16,
    SET_CHAT = 1 << 17,
    SET_GENERATE = 1 << 18,
    SET_SAMPLE = 1 << 19,
    SET_MODEL = 1 << 20,   /* -m and --pre-tokenizer */
    SET_THREADS = 1 << 21, /* -t alone */
    SET_ENGINE = 1 << 22,
    SET_CTX = 1 << 23,
    SET_POLICY = 1 << 24,   /* one */
    SET_POLICIES = 1 << 25, /* one row a policy */
    SET_PLAN = 1 << 26,     /* --dry-run */
    SET_JSON = 1 << 27,
    SET_PROGRESS = 1 << 28,
    SET_GENERAL = 1 << 29,
    SET_OWN_BANK = 1 << 30,
    SET_OWN_SERVE = 1ll << 31,
    SET_OWN_CHAT = 1ll << 32,
    SET_OWN_EMBED = 1ll << 33,
    SET_REPETITIONS = 1ll << 34, /* --dry-multiplier and its like, --logit-bias */
    SET_BANK_FILE = 1ll << 35,   /* --bank */
    SET_BANK_DIR = 1ll << 36,
    SET_OWN_QUANTIZE = 1ll << 37,
    SET_OWN_MEASURE = 1ll << 38, /* a text whose last tokens are measured */
    SET_OWN_LAZY = 1ll << 39,
    SET_OWN_ATTENTION = 1ll << 40,
    SET_OWN_KLD = 1ll << 41
};
enum { SET_COUNT = 42 }; /* not one of them: GCC 13 gives those 64 bits without a sign */

enum opt_id {
    ARG_CHAT,
    ARG_BANK,
    ARG_BANK_DIR,
    ARG_BANK_DIR_SIZE,
    ARG_BANK_OUTPUT,
    ARG_POOLING,
    ARG_NORMALIZE,
    ARG_LINES,
    ARG_EMBED_FORMAT,
    ARG_IMATRIX,
    ARG_QUANTIZE_INPUT,
    ARG_HOST,
    ARG_PORT,
    ARG_PARALLEL,
    ARG_QUEUE,
    ARG_DECODE_LATENCY,
    ARG_BANK_MEMORY,
    ARG_REQUEST_MEMORY,
    ARG_API_KEY,
    ARG_API_KEY_FILE,
    ARG_CORS,
    ARG_ALIAS,
    ARG_MODELS,
    ARG_MODELS_MEMORY,
    ARG_UNLOAD_AFTER,
    ARG_IDS,
    ARG_PIECES,
    ARG_NO_BOS,
    ARG_SPECIAL,
    ARG_DECODE,
    ARG_BACKENDS,
    ARG_FAMILIES,
    ARG_POLICY_LIST,
    ARG_PREFILL_LIST,
    ARG_CPU,
    ARG_MEASURE,
    ARG_PLANS,
    ARG_FIT,
    ARG_BENCH_PROMPT,
    ARG_BENCH_GEN,
    ARG_BENCH_DEPTH,
    ARG_BENCH_THREADS,
    ARG_PLANS_FIT,
    ARG_REPEATS,
    ARG_FORMAT,
    ARG_BENCH_RANKS,
    ARG_OPS,
    ARG_ONLY,
    ARG_PPL_FILE,
    ARG_PPL_WINDOW,
    ARG_CHUNKS,
    ARG_STRIDE,
    ARG_STREAM,
    ARG_POSITIONS,
    ARG_MEASURE_CTX,
    ARG_MEASURE_STEPS,
    ARG_PASSAGE,
    ARG_LAZY_SINK,
    ARG_LAZY_RECENT,
    ARG_PER_TOKEN,
    ARG_CONTEXT,
    ARG_TARGET,
    ARG_ALSO,
    ARG_LENGTH,
    ARG_DEPTH,
    ARG_NEEDLES,
    ARG_HAYSTACK,
    ARG_COT,
    ARG_PUBLISHED,
    ARG_ENTRIES,
    ARG_MOST_SUM,
    ARG_TASKS,
    ARG_QA_FILE,
    ARG_ITEMS,
    ARG_TASK_SEED,
    ARG_QUESTION,
    ARG_TOO_LONG,
    ARG_USE_CHAT,
    ARG_MAX_NEW,
    ARG_ANSWERS,
    ARG_TABLE,
    ARG_MEASURE_PLOT,
    ARG_PLOT,
    ARG_CAL_FILE,
    ARG_CAL_CTX,
    ARG_SAMPLES,
    ARG_CAL_BUDGET,
    ARG_CAL_ITEMS,
    ARG_CAL_RULE,
    ARG_CAL_KEEP,
    ARG_CAL_SEED,
    ARG_THETA,
    ARG_SAVING,
    ARG_CAL_OUTPUT,
    ARG_CAL_PLOT,
    ARG_PROMPT,
    ARG_FILE,
    ARG_ESCAPE,
    ARG_DOCUMENT,
    ARG_COLOR,
    ARG_IN_PREFIX,
    ARG_IN_SUFFIX,
    ARG_SYSTEM,
    ARG_SYSTEM_FILE,
    ARG_CHAT_TEMPLATE,
    ARG_CHAT_TEMPLATE_FILE,
    ARG_CHAT_TEMPLATE_VARS,
    ARG_PREDICT,
    ARG_STOP,
    ARG_IGNORE_EOS,
    ARG_GRAMMAR,
    ARG_GRAMMAR_FILE,
    ARG_JSON_SCHEMA,
    ARG_JSON_SCHEMA_FILE,
    ARG_REGEX,
    ARG_DRAFT,
    ARG_DRAFT_MTP,
    ARG_DRAFT_MODEL,
    ARG_ALL_LOGITS,
    ARG_SEED,
    ARG_TEMP,
    ARG_TOP_K,
    ARG_TOP_P,
    ARG_MIN_P,
    ARG_REPEAT_PENALTY,
    ARG_FREQUENCY_PENALTY,
    ARG_PRESENCE_PENALTY,
    ARG_REPEAT_LAST_N,
    ARG_TYPICAL,
    ARG_XTC_PROBABILITY,
    ARG_XTC_THRESHOLD,
    ARG_DRY_MULTIPLIER,
    ARG_DRY_BASE,
    ARG_DRY_ALLOWED,
    ARG_DRY_LAST_N,
    ARG_DRY_BREAKER,
    ARG_MIROSTAT,
    ARG_MIROSTAT_LR,
    ARG_MIROSTAT_ENT,
    ARG_LOGIT_BIAS,
    ARG_MODEL,
    ARG_PRE_TOKENIZER,
    ARG_THREADS,
    ARG_THREADS_BATCH,
    ARG_ROPE_SCALING,
    ARG_ROPE_SCALE,
    ARG_ROPE_BASE,
    ARG_LORA,
    ARG_LORA_SCALED,
    ARG_NUMA,
    ARG_PIN,
    ARG_MLOCK,
    ARG_DEVICE,
    ARG_WORKING_SET,
    ARG_STREAM_KV,
    ARG_CHECKPOINTS,
    ARG_SPLIT,
    ARG_CHUNK,
    ARG_EXPAND_LATENTS,
    ARG_CTX,
    ARG_TYPE_K,
    ARG_TYPE_V,
    ARG_POLICY,
    ARG_POLICIES,
    ARG_PREFILL,
    ARG_DRY_RUN,
    ARG_JSON,
    ARG_PROGRESS,
    ARG_VERBOSE,
    ARG_QUIET,
    ARG_LOG_FILE,
    ARG_HELP,
    ARG_HELP_ALL,
    ARG_VERSION,
    ARG_COUNT
};

struct opt_row {
    const char *name;  /* without the dashes */
    const char *alias; /* other spellings with their dashes, blank-separated, or NULL */
    const char *old;   /* former name, deprecated: it works, with a warning; or NULL */
    char letter;       /* of the short form, or 0 */
    enum takes takes;
    int many;         /* may be given more than once; else the last one counts */
    int env;          /* CTXBANK_NAME gives the default */
    const char *unit; /* what the value is: TOKENS, FILE */
    double min, max;  /* of numbers */
    const char *def;  /* default as it would be typed, or NULL */
    const char *choices;
    uint64_t sets;
    const char *text;
};

extern const struct opt_row cb_opt_table[ARG_COUNT];
extern const char *const cb_opt_set_title[SET_COUNT];

struct arg_value {
    int set; /* given on the command line or in the environment */
    int64_t num;
    double real;
    const char **text; /* [n] */
    int64_t *list;     /* TAKES_INTS: [n] */
    int n;
    int by_old; /* given by the former name (1) or by its variable (2) */
};

struct cmd;

/* A value as it was given */
struct given {
    int id;
    const char *text;
};

struct opts {
    const struct cmd *cmd;
    struct arg_value v[ARG_COUNT];
    struct given *given; /* [n_given] in their order; n_typed of them are of the command line */
    int n_given, n_typed;
    const char **operand;
    int n_operand;
    struct ranked *ranked; /* the processes of --split (ranked.c), or NULL */
};

/* One sub-command. */
struct cmd {
    const char *name;     /* "run", "eval perplexity" */
    const char *operands; /* as usage shows them, or "" */
    int min_operands, max_operands;
    const char *brief;   /* a line for the list of commands */
    const char *example; /* arguments after the name, or NULL */
    uint64_t sets;
    int (*run)(
        const struct opts *o); /* 0, a negative status with cb_error() set, or an exit status */
    int hidden;
    const char *no_split; /* why --split does not go with it; NULL: it does */
};

/* argv[argc]: the arguments after the command's name. The options borrow argv's strings. Returns 0,
 * or CB_USAGE with cb_error() set. */
int cb_opts_parse(const struct cmd *cmd, int argc, char **argv, struct opts *out);
void cb_opts_free(struct opts *o);

/* Records "WHAT: WHY" and returns CB_USAGE. */
int cb_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The option of cmd that is spelled typed[n], dashes included, or -1 */
int cb_opt_find(const struct cmd *cmd, const char *typed, size_t n);

int cb_opt_set(const struct opts *o, enum opt_id id);   /* was it given? */
int cb_opt_typed(const struct opts *o, enum opt_id id); /* values on the command line */
int cb_opt_flag(const struct opts *o, enum opt_id id);
int cb_opt_int(const struct opts *o, enum opt_id id);
int64_t cb_opt_int64(const struct opts *o, enum opt_id id);
double cb_opt_real(const struct opts *o, enum opt_id id);
const char *cb_opt_text(const struct opts *o, enum opt_id id); /* the last one, or NULL */
const char *const *cb_opt_texts(const struct opts *o, enum opt_id id, int *n);
const int64_t *cb_opt_ints(const struct opts *o, enum opt_id id, int *n);
int cb_opt_is(const struct opts *o, enum opt_id id, const char *choice);

/* "CTXBANK_CTX_SIZE" of "ctx-size" */
void cb_opt_env_name(const char *name, char *buf, size_t cap);

/* opts_doc.c: text made from the table */
void cb_opts_help(const struct cmd *cmd, int all, FILE *f); /* all: also what few need */

#endif
