/* SPDX-License-Identifier: MIT */
/* served_models.c - the models that serve offers: that of -m, or the files of --models. */
#include "served_models.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/err.h"
#include "base/file.h"
#include "base/free_memory.h"
#include "base/utf8.h"
#include "base/words.h"
#include "cli/output/log.h"
#include "cli/prompt.h"

enum { MOST_MODELS = 4096 };

/* ---- names ---- */

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory");
}

/* Keeps the text until the end; NULL: memory ran out */
static const char *keep(struct served_models *s, char *text)
{
    if (!text || cb_grow_by_one(&s->text, s->n_text, sizeof *s->text)) {
        free(text);
        return NULL;
    }
    return s->text[s->n_text++] = text;
}

/* How many characters "-00001-of-00004" has at the end of name[n], 0 if it has no such end; *part,
 * *parts: its numbers */
static size_t split_end(const char *name, size_t n, int *part, int *parts)
{
    enum { LEN = 15 };
    int end = 0;

    if (n <= LEN || sscanf(name + n - LEN, "-%5d-of-%5d%n", part, parts, &end) != 2 || end != LEN)
        return 0;
    return LEN;
}

/* The length of a file's name without .gguf and without the number of its part */
static size_t stem_of(const char *file, int *part)
{
    size_t n = strlen(file);
    int parts;

    *part = 1;
    if (n > 5 && !strcmp(file + n - 5, ".gguf"))
        n -= 5;
    return n - split_end(file, n, part, &parts);
}

/* The model's name: the file's without folders, and what a terminal cannot show */
static char *name_of(const char *path)
{
    const char *file = cb_file_name(path);
    int part;
    char *name = strndup(file, stem_of(file, &part));

    if (name)
        name[cb_utf8_plain(name, strlen(name), "")] = '\0';
    return name;
}

/* ---- which there are ---- */

static int add_entry(struct served_models *s, const char *path, const char *name, uint64_t bytes)
{
    if (!path || !name)
        return no_memory();
    TRY(cb_grow_by_one(&s->at, s->n, sizeof *s->at));
    s->at[s->n++] = (struct serve_entry){ .name = name, .path = path, .bytes = bytes };
    return CB_OK;
}

/* A part of a split model that is not its first adds to the entry's bytes. */
static int add_file(struct served_models *s, const char *folder, const char *file)
{
    struct buf path = { 0 };
    struct stat st;
    int part;
    const size_t n = stem_of(file, &part), len = strlen(file);

    if (len <= 5 || strcmp(file + len - 5, ".gguf") != 0 || cb_begins(file, "mmproj"))
        return CB_OK;
    cb_buf_print(&path, "%s/%s", folder, file);
    if (path.failed || stat(path.s, &st) || !S_ISREG(st.st_mode)) {
        cb_buf_free(&path);
        return path.failed ? no_memory() : CB_OK;
    }
    if (part == 1 && s->n < MOST_MODELS) {
        const char *kept = keep(s, cb_buf_take(&path));
        return add_entry(s, kept, kept ? keep(s, name_of(kept)) : NULL, (uint64_t)st.st_size);
    }
    if (s->n && cb_is_word(s->at[s->n - 1].name, file, n))
        s->at[s->n - 1].bytes += (uint64_t)st.st_size;
    cb_buf_free(&path);
    return CB_OK;
}

/* In the order of their names, so that a model's parts follow its first one */
static int read_folder(struct served_models *s, const char *folder)
{
    struct dirent **list = NULL;
    const int n = scandir(folder, &list, NULL, alphasort);
    int rc = CB_OK;

    if (n < 0)
        return cb_fail(CB_EIO, "--models: %s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (!rc && list[i]->d_name[0] != '.')
            rc = add_file(s, folder, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    if (!rc && !s->n)
        rc = cb_fail(CB_EARG, "--models: %s: has no file that ends in .gguf", folder);
    return rc;
}

static int find_entry(const struct served_models *s, const char *name, size_t n)
{
    for (int i = 0; i < s->n; i++)
        if (cb_is_word(s->at[i].name, name, n))
            return i;
    return -1;
}

/* --alias NAME=MODEL, of several models: puts those of entry i side by side */
static int add_aliases(struct served_models *s, const char *const *given, int n, int i, int *used)
{
    struct serve_entry *e = &s->at[i];

    e->alias = s->alias + *used;
    for (int k = 0; k < n; k++) {
        const char *eq = strchr(given[k], '=');
        if (find_entry(s, eq + 1, strlen(eq + 1)) != i)
            continue;
        s->alias[*used] = keep(s, strndup(given[k], (size_t)(eq - given[k])));
        if (!s->alias[(*used)++])
            return no_memory();
        e->n_alias++;
    }
    return CB_OK;
}

static int name_several(struct served_models *s, const char *const *given, int n)
{
    int used = 0;

    for (int k = 0; k < n; k++) {
        const char *eq = strchr(given[k], '=');
        if (!eq || eq == given[k])
            return cb_usage("--alias %s: with --models, write NAME=MODEL", given[k]);
        if (find_entry(s, eq + 1, strlen(eq + 1)) < 0)
            return cb_usage("--alias %s: the folder has no such model", given[k]);
    }
    for (int i = 0; i < s->n; i++)
        TRY(add_aliases(s, given, n, i, &used));
    return CB_OK;
}

/* The only model: the first --alias is its name, others are further ones. */
static void name_one(struct served_models *s, const char *const *given, int n)
{
    if (n)
        s->at[0].name = given[0];
    for (int k = 1; k < n; k++)
        s->alias[k - 1] = given[k];
    s->at[0].alias = s->alias;
    s->at[0].n_alias = n > 1 ? n - 1 : 0;
}

static int open_one(struct served_models *s)
{
    const char *path = cb_need_model(s->o);
    struct stat st = { 0 };

    if (!path)
        return CB_USAGE;
    (void)stat(path, &st); /* opening it says what is wrong */
    TRY(add_entry(s, path, keep(s, name_of(path)), (uint64_t)st.st_size));
    TRY(cb_adapters_of(s->o, &s->adapter, &s->n_adapter));
    s->at[0].adapter = s->adapter;
    s->at[0].n_adapter = s->n_adapter;
    return CB_OK;
}

/* A template that is given for all models */
static int check_chat(const struct opts *o)
{
    const int named = cb_opt_set(o, ARG_CHAT_TEMPLATE) && !cb_opt_is(o, ARG_CHAT_TEMPLATE, "jinja");
    struct chat_choice c = { .how = { .form = NULL } };
    int rc = CB_OK;

    if (named || cb_opt_set(o, ARG_CHAT_TEMPLATE_FILE))
        rc = cb_chat_choose(o, NULL, &c);
    cb_chat_choice_free(&c);
    return rc;
}

static int open_several(struct served_models *s)
{
    static const enum opt_id one_only[] = { ARG_LORA, ARG_LORA_SCALED, ARG_DRAFT_MODEL };
    static const char *const names[] = { "lora", "lora-scaled", "draft-model" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (cb_opt_set(s->o, one_only[i]))
            return cb_usage("--%s: is for one model, not for --models", names[i]);
    TRY(cb_engine_check(s->o)); /* models are opened later, where nobody reads the message */
    TRY(check_chat(s->o));
    return read_folder(s, cb_opt_text(s->o, ARG_MODELS));
}

int cb_served_models_open(const struct opts *o, struct served_models *s)
{
    int n;
    const char *const *given = cb_opt_texts(o, ARG_ALIAS, &n);

    *s = (struct served_models){ .o = o };
    TRY(cb_opt_set(o, ARG_MODELS) ? open_several(s) : open_one(s));
    s->alias = cb_calloc((size_t)n + 1, sizeof *s->alias);
    if (!s->alias)
        return CB_ENOMEM;
    if (cb_opt_set(o, ARG_MODELS))
        return name_several(s, given, n);
    name_one(s, given, n);
    return CB_OK;
}

void cb_served_models_close(struct served_models *s)
{
    for (int i = 0; i < s->n_text; i++)
        free(s->text[i]);
    free(s->text);
    free(s->at);
    free(s->alias);
    free(s->adapter);
    *s = (struct served_models){ 0 };
}

/* ---- a model, opened ---- */

struct held {
    struct engine e;
    struct chat_choice chat;
    struct cb_sampler_params sampler;
};

static struct serve_model describe(const struct opts *o, const struct held *h)
{
    return (struct serve_model){
        .model = h->e.model,
        .chat = h->chat.how,
        .system = cb_opt_text(o, ARG_SYSTEM),
        .pooling = cb_pooling_of(o),
        .sampler = h->sampler,
        .seed_drawn = cb_opt_int64(o, ARG_SEED) < 0,
        .scheduler = { .slots = { .session = h->e.chosen,
                                  .n = cb_opt_int(o, ARG_PARALLEL),
                                  .most_bytes = (uint64_t)cb_opt_int64(o, ARG_BANK_MEMORY),
                                  .dir = h->e.dir },
                       .most_waiting = cb_opt_int(o, ARG_QUEUE),
                       .draft = cb_engine_draft(o),
                       .drafter = h->e.draft,
                       .decode_latency_s = cb_opt_int(o, ARG_DECODE_LATENCY) * 1e-3 },
    };
}

/* --bank-dir; a folder that cannot be used is no reason not to start. */
static cb_bank_dir *open_dir(const struct opts *o)
{
    const struct cb_bank_dir_params p = { (uint64_t)cb_opt_int64(o, ARG_BANK_DIR_SIZE) };
    const char *path = cb_opt_text(o, ARG_BANK_DIR);
    cb_bank_dir *dir = NULL;

    if (path && cb_bank_dir_open(path, &p, &dir))
        cb_log_note("%s; nothing is remembered", cb_error());
    return dir;
}

/* The draft model's session, tried on a session of requests */
static int open_drafter(const struct opts *o, struct engine *e)
{
    cb_speculation *x;
    int rc;

    TRY(cb_engine_draft_session(o, e, e->n_ctx));
    if (!e->draft)
        return CB_OK;
    TRY(cb_speculation_new(e->session, 0, &x));
    rc = cb_speculation_set_draft(x, e->draft);
    cb_speculation_free(x);
    return rc;
}

/* A session as requests will have it: what is wrong with the options is said before the start, and
 * no request waits for the output head's preview. *bytes: of weights and work space */
static int try_session(const struct opts *o, struct held *h, uint64_t *bytes)
{
    struct engine *e = &h->e;
    struct cb_memory m;
    int rc;

    TRY(cb_engine_session(o, e, cb_engine_policy(o, e), cb_opt_int(o, ARG_CTX)));
    if (cb_session_want_top(e->session, cb_sampler_top(&h->sampler)) == CB_ENOMEM)
        cb_log_note("not enough memory to prune the output head: tokens take longer");
    cb_session_memory(e->session, &m);
    *bytes = m.weights_bytes + m.scratch_bytes;
    rc = open_drafter(o, e);
    cb_session_close(e->session);
    e->session = NULL;
    return rc;
}

static int open_held(const struct opts *o, const struct serve_entry *entry, const float *scale,
                     struct held *h, uint64_t *bytes)
{
    uint64_t fingerprint;
    char *text;

    TRY(cb_engine_open_file(o, entry->path, scale, &h->e));
    if (cb_opt_set(o, ARG_CHAT_TEMPLATE) || cb_opt_set(o, ARG_CHAT_TEMPLATE_FILE) ||
        h->e.info.chat_form)
        TRY(cb_chat_choose(o, &h->e, &h->chat));
    else if (cb_chat_text(h->e.model, NULL, NULL, 0, 0, &text))
        cb_log_note("%s; only completions of texts will work", cb_error());
    TRY(cb_sampler_from(o, &h->sampler));
    TRY(try_session(o, h, bytes));
    h->e.dir = open_dir(o);
    if (h->e.dir) /* now, so that the first question need not wait for it */
        TRY(cb_model_fingerprint(h->e.model, &fingerprint));
    return CB_OK;
}

static void close_held(struct held *h)
{
    cb_chat_choice_free(&h->chat);
    cb_engine_close(&h->e);
    free(h);
}

static int open_model(void *arg, int i, const float *scale, struct serve_model *out)
{
    const struct served_models *s = arg;
    struct held *h = cb_calloc(1, sizeof *h);
    uint64_t bytes = 0;
    sigset_t before;
    int rc;

    if (!h)
        return CB_ENOMEM;
    if (s->signals)
        pthread_sigmask(SIG_SETMASK, s->signals, &before);
    rc = open_held(s->o, &s->at[i], scale, h, &bytes);
    if (s->signals)
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        close_held(h);
        return rc;
    }
    *out = describe(s->o, h);
    out->bytes = bytes;
    out->held = h;
    return CB_OK;
}

static void close_model(void *arg, struct serve_model *m)
{
    (void)arg;
    close_held(m->held);
}

/* --models-memory, or three quarters of what is free at the start */
static uint64_t most_bytes(const struct opts *o)
{
    const uint64_t given = (uint64_t)cb_opt_int64(o, ARG_MODELS_MEMORY);

    return !cb_opt_set(o, ARG_MODELS) ? 0 : given ? given : cb_free_bytes() / 4 * 3;
}

struct serve_models cb_served_models(struct served_models *s)
{
    return (struct serve_models){ .at = s->at,
                                  .n = s->n,
                                  .several = cb_opt_set(s->o, ARG_MODELS),
                                  .open = open_model,
                                  .close = close_model,
                                  .arg = s,
                                  .most_bytes = most_bytes(s->o),
                                  .unload_after_s = cb_opt_int(s->o, ARG_UNLOAD_AFTER) };
}
