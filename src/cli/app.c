/* SPDX-License-Identifier: MIT */
/* app.c - opens the model and the session that the options describe. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/number.h"
#include "base/random.h"
#include "cli/output/log.h"
#include "cmd.h"
#include "default_threads.h"
#include "engine/in_step.h"
#include "eval/data.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "model/model_over.h"
#include "ranked.h"

const char *cb_need_model(const struct opts *o)
{
    const char *path = cb_opt_text(o, ARG_MODEL);

    if (path && *path)
        return path;
    cb_usage("model: none given; use -m MODEL.gguf or set CTXBANK_MODEL");
    return NULL;
}

/* The text of an environment variable; NULL if it is unset or empty. */
static const char *from_env(const char *name)
{
    const char *v = getenv(name);

    return v && *v ? v : NULL;
}

static int is_off(const char *name)
{
    const char *v = getenv(name);

    return v && !strcmp(v, "0");
}

/* Was this not said before? Commands such as eval open many sessions with one policy. */
static int is_news(const char *message)
{
    enum { MOST = 64 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *said[MOST];
    static int n;
    int i = 0, news;

    pthread_mutex_lock(&lock);
    while (i < n && strcmp(said[i], message))
        i++;
    news = i == n;
    if (news && n < MOST && (said[n] = strdup(message)))
        n++;
    pthread_mutex_unlock(&lock);
    return news;
}

static void on_log(void *arg, enum cb_log_level level, const char *message)
{
    (void)arg;
    if (level != CB_LOG_NOTE)
        cb_log_detail("%s", message);
    else if (is_news(message))
        cb_log_note("%s", message);
}

static const struct {
    enum opt_id text, file; /* file ARG_COUNT: none */
    int (*read)(const char *text, cb_grammar **out);
} grammars[] = {
    { ARG_GRAMMAR, ARG_GRAMMAR_FILE, cb_grammar_new_gbnf },
    { ARG_JSON_SCHEMA, ARG_JSON_SCHEMA_FILE, cb_grammar_new_json_schema },
    { ARG_REGEX, ARG_COUNT, cb_grammar_new_regex },
};

static int read_grammar_file(const char *path, int (*read)(const char *, cb_grammar **),
                             cb_grammar **out)
{
    struct buf b;
    int rc;

    TRY(cb_read_file(path, &b));
    if (memchr(b.s ? b.s : "", 0, b.n))
        rc = cb_fail(CB_EARG, "%s: has a NUL byte", path);
    else if ((rc = read(b.s ? b.s : "", out)))
        cb_fail_in(rc, path);
    cb_buf_free(&b);
    return rc;
}

/* At most one of the options that name a grammar */
static int open_grammar(const struct opts *o, cb_grammar **out)
{
    int n = 0;

    *out = NULL;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        const char *text = cb_opt_text(o, grammars[i].text);
        const char *file = grammars[i].file == ARG_COUNT ? NULL : cb_opt_text(o, grammars[i].file);
        n += !!text + !!file;
        if (n > 1)
            return cb_usage("a grammar: only one of --grammar, --json-schema, --regex, or a file");
        if (text)
            TRY(grammars[i].read(text, out));
        else if (file)
            TRY(read_grammar_file(file, grammars[i].read, out));
    }
    if (*out && *cb_grammar_notes(*out))
        fprintf(stderr, "ctxbank: the schema is not kept exactly:\n%s", cb_grammar_notes(*out));
    if (n && cb_opt_flag(o, ARG_IGNORE_EOS))
        return cb_usage("--ignore-eos: a text of a grammar ends");
    return CB_OK;
}

int cb_adapters_of(const struct opts *o, struct cb_adapter **out, int *n)
{
    *n = 0;
    *out = cb_calloc((size_t)o->n_given + 1, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    for (int i = 0; i < o->n_given; i++) {
        if (o->given[i].id == ARG_LORA) {
            (*out)[(*n)++] = (struct cb_adapter){ o->given[i].text, 1 };
        } else if (o->given[i].id == ARG_LORA_SCALED) { /* two texts */
            (*out)[(*n)++] = (struct cb_adapter){ o->given[i].text,
                                                  (float)cb_number(o->given[i + 1].text, NULL) };
            i++;
        }
    }
    return CB_OK;
}

/* Those that do something. scale NULL: as the options have them */
static int read_adapters(const struct opts *o, const float *scale, struct engine *e)
{
    int n;

    TRY(cb_adapters_of(o, &e->adapter, &n));
    for (int i = 0; i < n; i++) {
        struct cb_adapter x = e->adapter[i];
        x.scale = scale ? scale[i] : x.scale;
        if (x.scale != 0)
            e->adapter[e->n_adapter++] = x;
    }
    return CB_OK;
}

/* --draft-mtp, in commands that generate, and in the one that tells whether a file has a head */
static int draft_mtp(const struct opts *o)
{
    return o->cmd->sets & (cb_opt_table[ARG_DRAFT_MTP].sets | SET_OWN_INFO)
               ? cb_opt_int(o, ARG_DRAFT_MTP)
               : 0;
}

/* The weights and the context */
static int deals_both(const struct opts *o)
{
    return cb_opt_is(o, ARG_SPLIT, "tensor+context");
}

/* As the options say; e NULL: a draft model, without adapters and drafts of its own */
static int open_model(const struct opts *o, int n_threads, const struct engine *e, const char *path,
                      cb_model **out)
{
    char presets[PATH_MAX], kernels[PATH_MAX];
    const struct thread_numbers threads = cb_threads_of(o, n_threads);
    const struct cb_model_params p = {
        .n_threads = threads.token,
        .n_threads_batch = threads.prompt,
        .device = cb_opt_text(o, ARG_DEVICE),
        .working_set = (uint64_t)cb_opt_int64(o, ARG_WORKING_SET),
        .stream_kv = cb_opt_flag(o, ARG_STREAM_KV),
        .kernel_cache = cb_user_cache("kernels", kernels, sizeof kernels),
        .numa = cb_opt_text(o, ARG_NUMA),
        .pin = cb_opt_flag(o, ARG_PIN),
        .isa = from_env("CTXBANK_ISA"),
        .matmul = from_env("CTXBANK_MATMUL"),
        .rows_only = is_off("CTXBANK_PREPACK"),
        .small_pages = is_off("CTXBANK_HUGE_PAGES"),
        .rope_scaling = cb_opt_set(o, ARG_ROPE_SCALING) ? cb_opt_text(o, ARG_ROPE_SCALING) : NULL,
        .rope_scale = cb_opt_set(o, ARG_ROPE_SCALE) ? (float)cb_opt_real(o, ARG_ROPE_SCALE) : 0,
        .rope_freq_base = cb_opt_set(o, ARG_ROPE_BASE) ? (float)cb_opt_real(o, ARG_ROPE_BASE) : 0,
        .preset_dir = cb_data_find("presets", presets, sizeof presets) ? NULL : presets,
        .pre_tokenizer = cb_opt_text(o, ARG_PRE_TOKENIZER),
        .draft_mtp = e ? draft_mtp(o) : 0,
        .adapters = e ? e->adapter : NULL,
        .n_adapter = e ? e->n_adapter : 0,
        .log = on_log,
    };

    const int rows = cb_opt_is(o, ARG_SPLIT, "tensor") || deals_both(o);
    const int layers = cb_opt_is(o, ARG_SPLIT, "layers");

    return cb_model_open_over(path, &p, e ? e->team : NULL,
                              rows     ? DEAL_ROWS
                              : layers ? DEAL_LAYERS
                                       : DEAL_NOTHING,
                              out);
}

/* ---- a draft model ---- */

enum {
    DRAFT = 8,       /* tokens, where --draft says nothing */
    DRAFT_CTX = 4096 /* most tokens that a draft model follows: reading them takes its time */
};

int cb_engine_draft(const struct opts *o)
{
    return cb_opt_set(o, ARG_DRAFT_MODEL) && !cb_opt_set(o, ARG_DRAFT) ? DRAFT
                                                                       : cb_opt_int(o, ARG_DRAFT);
}

static int open_draft_model(const struct opts *o, struct engine *e)
{
    const char *path = cb_opt_text(o, ARG_DRAFT_MODEL);

    if (!path)
        return CB_OK;
    if (!cb_engine_draft(o))
        return cb_usage("--draft-model: --draft 0 asks for no drafts");
    TRY(open_model(o, cb_opt_int(o, ARG_THREADS), NULL, path, &e->draft_model));
    return cb_model_drafts_for(e->draft_model, e->model) ? cb_fail_in(CB_EARG, path) : CB_OK;
}

int cb_engine_draft_session(const struct opts *o, struct engine *e, int n_ctx)
{
    struct cb_session_params p = { .chunk = cb_opt_int(o, ARG_CHUNK) };
    struct cb_model_info info;

    if (!e->draft_model || e->draft)
        return CB_OK;
    cb_model_get_info(e->draft_model, &info);
    p.n_ctx = n_ctx < info.n_ctx_train ? n_ctx : info.n_ctx_train;
    p.n_ctx = p.n_ctx < DRAFT_CTX ? p.n_ctx : DRAFT_CTX;
    if (info.n_target_embd) /* it reads no tokens, but the session's keys */
        p.n_ctx = n_ctx;
    return cb_session_open(e->draft_model, &p, &e->draft);
}

static int check_device(const struct opts *o)
{
    const char *device = cb_opt_text(o, ARG_DEVICE);

    if ((cb_opt_int64(o, ARG_WORKING_SET) || cb_opt_flag(o, ARG_STREAM_KV)) &&
        (!strcmp(device, "cpu") || !strcmp(device, "ref")))
        return cb_usage("--%s: device %s keeps the whole bank in host memory",
                        cb_opt_flag(o, ARG_STREAM_KV) ? "stream-kv" : "working-set", device);
    return CB_OK;
}

/* Kernels keep tiles on the stack, in each thread. */
static int check_stack(void)
{
    enum { NEEDED = 512 << 10 };
    struct rlimit of;

    if (getrlimit(RLIMIT_STACK, &of) || of.rlim_cur >= NEEDED)
        return CB_OK;
    return cb_fail(CB_ENOMEM, "the stack is limited to %d KiB, and kernels need %d: ulimit -s %d",
                   (int)(of.rlim_cur >> 10), NEEDED >> 10, NEEDED >> 10);
}

int cb_engine_check(const struct opts *o)
{
    const char *policy = cb_opt_set(o, ARG_POLICY) ? cb_opt_text(o, ARG_POLICY) : NULL;
    const int is_auto = cb_auto_is(policy);
    const struct cb_session_params p = { .type_k = cb_opt_text(o, ARG_TYPE_K),
                                         .type_v = cb_opt_text(o, ARG_TYPE_V),
                                         .policy = is_auto ? NULL : policy,
                                         .prefill = cb_opt_text(o, ARG_PREFILL) };

    TRY(check_device(o));
    if (is_auto)
        TRY(cb_auto_check(policy));
    return cb_settings_check(&p, cb_opt_text(o, ARG_DEVICE));
}

/* *out NULL: without --split */
static int take_team(const struct opts *o, struct ranks **out)
{
    *out = o->ranked ? o->ranked->team : NULL;
    return *out && o->ranked->n_model++
               ? cb_fail(CB_EUNSUPPORTED, "--split: the processes open one model, once")
               : CB_OK;
}

/* Says which options change nothing with this model. */
static void note_idle_options(const struct opts *o, const struct engine *e)
{
    const int latent = e->model->hp.latent.rank != 0;

    if (cb_opt_flag(o, ARG_EXPAND_LATENTS) && (!latent || e->team))
        cb_log_note("--expand-latents changes nothing: %s",
                    latent ? "it is not yet done by several processes"
                           : "the model has no latent attention");
}

static int open_file(const struct opts *o, const char *path, int n_threads, const float *scale,
                     struct engine *e)
{
    const double start = cb_now_s();

    *e = (struct engine){ .path = path };
    TRY(take_team(o, &e->team));
    TRY(check_stack());
    TRY(check_device(o));
    TRY(open_grammar(o, &e->grammar));
    TRY(read_adapters(o, scale, e));
    cb_bus_error_catch(e->path);
    TRY(open_model(o, n_threads, e, e->path, &e->model));
    TRY(cb_in_step_open(e->model, e->team, deals_both(o)));
    cb_bus_error_add(e->model);
    cb_model_get_info(e->model, &e->info);
    if (e->info.n_target_embd && !(o->cmd->sets & SET_OWN_INFO))
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: %s: guesses for a model of another file, with --draft-model, and "
                       "writes no text itself",
                       e->path, e->info.arch);
    if (!cb_ranks_me(e->team)) /* rank 0 has the drafts */
        TRY(open_draft_model(o, e));
    if (cb_opt_flag(o, ARG_MLOCK) && mlockall(MCL_CURRENT))
        cb_log_note("--mlock: %s; 'ulimit -l' says how much may be locked", strerror(errno));
    note_idle_options(o, e);
    e->load_s = cb_now_s() - start;
    cb_log_detail("model: %s (%s %s), loaded in %.2f s", e->path, e->info.name, e->info.quant,
                  e->load_s);
    return CB_OK;
}

int cb_engine_open_file(const struct opts *o, const char *path, const float *scale,
                        struct engine *e)
{
    return open_file(o, path, cb_opt_int(o, ARG_THREADS), scale, e);
}

int cb_engine_open_threads(const struct opts *o, int n_threads, struct engine *e)
{
    const char *path = cb_need_model(o);

    *e = (struct engine){ .path = path };
    return path ? open_file(o, path, n_threads, NULL, e) : CB_USAGE;
}

int cb_engine_open(const struct opts *o, struct engine *e)
{
    return cb_engine_open_threads(o, cb_opt_int(o, ARG_THREADS), e);
}

/* Bytes of --checkpoints, as struct cb_session_params takes them */
static uint64_t checkpoint_bytes(const struct opts *o)
{
    const int64_t bytes = cb_opt_int64(o, ARG_CHECKPOINTS);

    return bytes ? (uint64_t)bytes : 1; /* 0 would be the library's default */
}

const char *cb_engine_policy(const struct opts *o, const struct engine *e)
{
    return cb_opt_set(o, ARG_POLICY) ? cb_opt_text(o, ARG_POLICY) : e->info.policy;
}

const char *const *cb_engine_policies(const struct opts *o, const struct engine *e, int *n)
{
    if (cb_opt_set(o, ARG_POLICIES))
        return cb_opt_texts(o, ARG_POLICIES, n);
    *n = 1;
    return &e->info.policy;
}

int cb_engine_params(const struct opts *o, struct engine *e, const char *policy, int n_ctx,
                     struct cb_session_params *out)
{
    *out = (struct cb_session_params){
        .n_ctx = n_ctx,
        .chunk = cb_opt_int(o, ARG_CHUNK),
        .checkpoint_bytes = checkpoint_bytes(o),
        .expand_latents = cb_opt_flag(o, ARG_EXPAND_LATENTS),
        .type_k = cb_opt_text(o, ARG_TYPE_K),
        .type_v = cb_opt_text(o, ARG_TYPE_V),
        .policy = policy,
        .prefill = cb_opt_text(o, ARG_PREFILL),
    };
    if (cb_auto_is(policy))
        TRY(cb_auto_choose(o, e, out));
    e->chosen = *out;
    return CB_OK;
}

/* Memory grows with the context, so an error names the option. */
static int no_memory_for(int n_ctx)
{
    char why[256];

    snprintf(why, sizeof why, "%s", cb_error());
    return cb_fail(CB_ENOMEM, "a context of %d tokens (-c): %s", n_ctx, why);
}

int cb_engine_session(const struct opts *o, struct engine *e, const char *policy, int n_ctx)
{
    struct cb_session_params p;
    int rc;

    TRY(cb_engine_params(o, e, policy, n_ctx, &p));
    cb_session_close(e->session);
    e->session = NULL;
    rc = cb_session_open(e->model, &p, &e->session);
    if (rc == CB_ENOMEM && n_ctx > 0)
        return no_memory_for(n_ctx);
    TRY(rc);
    e->n_ctx = cb_session_n_ctx(e->session);
    cb_log_detail("session: context %d, policy %s, keys %s, values %s, prefill %s", e->n_ctx,
                  p.policy, p.type_k, p.type_v, p.prefill);
    return CB_OK;
}

static struct cb_sampler_params sampler(const struct opts *o)
{
    struct cb_sampler_params p = cb_sampler_defaults();

    p.temp = (float)cb_opt_real(o, ARG_TEMP);
    p.top_k = cb_opt_int(o, ARG_TOP_K);
    p.top_p = (float)cb_opt_real(o, ARG_TOP_P);
    p.min_p = (float)cb_opt_real(o, ARG_MIN_P);
    p.repeat_penalty = (float)cb_opt_real(o, ARG_REPEAT_PENALTY);
    p.frequency_penalty = (float)cb_opt_real(o, ARG_FREQUENCY_PENALTY);
    p.presence_penalty = (float)cb_opt_real(o, ARG_PRESENCE_PENALTY);
    p.penalty_last_n = cb_opt_int(o, ARG_REPEAT_LAST_N);
    p.typical_p = (float)cb_opt_real(o, ARG_TYPICAL);
    p.xtc_probability = (float)cb_opt_real(o, ARG_XTC_PROBABILITY);
    p.xtc_threshold = (float)cb_opt_real(o, ARG_XTC_THRESHOLD);
    p.dry_multiplier = (float)cb_opt_real(o, ARG_DRY_MULTIPLIER);
    p.dry_base = (float)cb_opt_real(o, ARG_DRY_BASE);
    p.dry_allowed_length = cb_opt_int(o, ARG_DRY_ALLOWED);
    p.mirostat = cb_opt_is(o, ARG_MIROSTAT, "2") ? 2 : 0;
    p.mirostat_tau = (float)cb_opt_real(o, ARG_MIROSTAT_ENT);
    p.mirostat_eta = (float)cb_opt_real(o, ARG_MIROSTAT_LR);
    return p;
}

/* Preparing the pruned output head costs the time that it saves in about this many tokens. */
enum { PREVIEW_PAYS = 256 };

int cb_engine_sampling(const struct opts *o, struct engine *e)
{
    const struct cb_sampler_params p = sampler(o);
    const int n = cb_opt_int(o, ARG_PREDICT), is_short = n >= 0 && n < PREVIEW_PAYS;
    const int32_t *ends;
    const int all =
        cb_opt_flag(o, ARG_ALL_LOGITS) || is_short || e->grammar || cb_opt_set(o, ARG_LOGIT_BIAS);
    int k = all ? 0 : cb_sampler_top(&p), rc;

    if (k && cb_opt_flag(o, ARG_IGNORE_EOS))
        k += cb_token_ends(e->model, &ends); /* end tokens are never sampled */
    rc = cb_session_want_top(e->session, k);
    if (rc != CB_ENOMEM)
        return rc;
    cb_log_note("not enough memory to prune the output head: tokens take longer");
    return CB_OK;
}

void cb_engine_close(struct engine *e)
{
    cb_session_close(e->session);
    cb_session_close(e->draft);
    cb_bank_dir_close(e->dir);
    cb_bus_error_remove(e->model);
    if (!cb_ranks_me(e->team))
        (void)cb_in_step_finish(e->model); /* a rank that is lost ends the job by itself */
    cb_in_step_close(e->model);
    cb_model_close(e->model);
    cb_model_close(e->draft_model);
    cb_grammar_free(e->grammar);
    free(e->adapter);
    e->adapter = NULL;
    e->grammar = NULL;
    e->session = NULL;
    e->dir = NULL;
    e->model = NULL;
    e->draft = NULL;
    e->draft_model = NULL;
}

int cb_sampler_from(const struct opts *o, struct cb_sampler_params *out)
{
    const int64_t seed = cb_opt_int64(o, ARG_SEED);
    uint32_t drawn = 0;

    *out = sampler(o);
    if (seed < 0)
        TRY(cb_random(&drawn, sizeof drawn));
    out->seed = seed < 0 ? drawn : (uint64_t)seed;
    if (out->temp > 0)
        cb_log_detail("sampler: seed %llu", (unsigned long long)out->seed);
    return CB_OK;
}
