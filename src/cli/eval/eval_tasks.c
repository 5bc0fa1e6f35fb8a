/* SPDX-License-Identifier: MIT */
/* eval_tasks.c - ctxbank eval needle, passkey, ruler, 2stage, longbench, file: tasks asked under
 * each policy, and a table of their scores. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/new_file.h"
#include "base/suggest.h"
#include "cli/cmd.h"
#include "cli/output/log.h"
#include "cli/output/plot.h"
#include "cli/output/score_table.h"
#include "eval/ask_bank.h"
#include "eval/data.h"
#include "eval/gen.h"
#include "eval/published.h"

struct tasks {
    const struct opts *o;
    struct engine e;
    struct run run;
    struct item_list items;
    struct haystack hay;
    struct answers have;
    struct progress bar;
};

static void on_warn(void *arg, const char *text)
{
    (void)arg;
    cb_log_note("%s", text);
}

/* ---- items that are made up ---- */

static int count_tokens(void *arg, const char *text, size_t n)
{
    const struct tasks *t = arg;
    int32_t *ids;
    int n_ids, rc;

    if (cb_interrupted())
        return cb_fail(CB_ECANCEL, "stopped");
    rc = cb_tokenize(t->e.model, text, n, 0, &ids, &n_ids);
    if (rc)
        return rc;
    free(ids);
    return n_ids;
}

/* Tokens that the chat template adds to a prompt. */
static int chat_tokens(struct tasks *t, int *n)
{
    static const char word[] = "word";
    const struct cb_message msg = { "user", word };
    const struct cb_chat how = { .form = t->run.form };
    char *text;

    *n = t->e.info.add_bos ? 1 : 0;
    if (t->run.chat != CHAT_ALWAYS || !t->run.form)
        return CB_OK;
    TRY(cb_chat_text(t->e.model, &how, &msg, 1, 1, &text));
    *n += count_tokens(t, text, strlen(text)); /* markers count as plain text: never too few */
    free(text);
    return *n < 0 ? *n : CB_OK;
}

static int read_haystack(struct tasks *t)
{
    char path[PATH_MAX];
    const char *given = cb_opt_text(t->o, ARG_HAYSTACK);

    if (given)
        return cb_haystack_read(given, &t->hay);
    if (cb_data_find("blue-carbuncle.txt", path, sizeof path))
        return cb_fail(CB_EIO, "haystack: the text that comes with the program was not found; give "
                               "one with --haystack FILE");
    return cb_haystack_read(path, &t->hay);
}

struct made_up {
    struct gen g;
    int *length, *depth; /* owned */
};

static int copy_ints(const struct opts *o, enum opt_id id, int **out, int *n)
{
    const int64_t *list = cb_opt_ints(o, id, n);

    *out = cb_calloc((size_t)*n + 1, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    for (int i = 0; i < *n; i++)
        (*out)[i] = (int)list[i];
    return CB_OK;
}

static int made_up(struct tasks *t, struct made_up *m)
{
    struct gen *g = &m->g;

    *m = (struct made_up){ .g = { .seed = (uint64_t)cb_opt_int64(t->o, ARG_TASK_SEED),
                                  .n_needle = 1,
                                  .items =
                                      cb_opt_set(t->o, ARG_ITEMS) ? cb_opt_int(t->o, ARG_ITEMS) : 5,
                                  .count = count_tokens,
                                  .arg = t } };
    TRY(copy_ints(t->o, ARG_LENGTH, &m->length, &g->n_length));
    g->length = m->length;
    return chat_tokens(t, &g->reserve);
}

static void made_up_free(struct made_up *m)
{
    free(m->length);
    free(m->depth);
}

static int make_needles(struct tasks *t)
{
    struct made_up m;
    int rc = made_up(t, &m);

    m.g.n_needle = cb_opt_int(t->o, ARG_NEEDLES);
    if (!cb_opt_set(t->o, ARG_ITEMS))
        m.g.items = 1;
    if (!rc)
        rc = copy_ints(t->o, ARG_DEPTH, &m.depth, &m.g.n_depth);
    m.g.depth = m.depth;
    if (!rc)
        rc = read_haystack(t);
    m.g.haystack = &t->hay;
    if (!rc)
        rc = cb_gen_needle(&m.g, &t->items);
    made_up_free(&m);
    return rc;
}

static int make_passkeys(struct tasks *t)
{
    struct made_up m;
    int rc = made_up(t, &m);

    if (!rc)
        rc = cb_gen_passkey(&m.g, &t->items);
    made_up_free(&m);
    return rc;
}

static int make_2stage(struct tasks *t)
{
    const int published = cb_opt_flag(t->o, ARG_PUBLISHED);
    struct made_up m;
    int rc;

    if (published && (cb_opt_set(t->o, ARG_COT) || cb_opt_set(t->o, ARG_LENGTH)))
        return cb_usage("--published: sets what --%s would",
                        cb_opt_set(t->o, ARG_COT) ? "cot" : "length");
    rc = made_up(t, &m);
    if (!rc && published)
        rc = cb_gen_2stage_published(&m.g, &t->items);
    if (!rc && !published && !cb_opt_is(t->o, ARG_COT, "yes"))
        rc = cb_gen_2stage(&m.g, 0, &t->items);
    if (!rc && !published && !cb_opt_is(t->o, ARG_COT, "no"))
        rc = cb_gen_2stage(&m.g, 1, &t->items);
    made_up_free(&m);
    return rc;
}

/* ---- which tasks ---- */

/* Is the name in the list of --tasks? Without the option every name is. */
static int picked(const struct opts *o, const char *name)
{
    const char *list = cb_opt_text(o, ARG_TASKS);
    const size_t n = strlen(name);

    if (!list)
        return 1;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && !strncmp(at, name, n))
            return 1;
    return 0;
}

/* Each name of --tasks must be in the table. */
static int check_picked(const struct opts *o, name_fn at, const void *ctx)
{
    const char *list = cb_opt_text(o, ARG_TASKS);
    char names[600];

    for (const char *p = list ? list : ""; *p; p += strcspn(p, ","), p += *p == ',') {
        const size_t n = strcspn(p, ",");
        const char *near;
        if (cb_name_find(p, n, at, ctx) >= 0)
            continue;
        near = cb_name_nearest(p, n, at, ctx);
        if (near)
            return cb_usage("--tasks %.*s: no such task; did you mean %s?", (int)n, p, near);
        cb_name_list(names, sizeof names, at, ctx);
        return cb_usage("--tasks %.*s: no such task; there are %s", (int)n, p, names);
    }
    return CB_OK;
}

static const char *ruler_name(const void *ctx, int i)
{
    const struct ruler_task *t = cb_ruler_at(i);
    (void)ctx;
    return t ? cb_ruler_name(t) : NULL;
}

static int make_ruler_tasks(struct tasks *t, const struct gen *g)
{
    const struct ruler_task *r;

    for (int i = 0; (r = cb_ruler_at(i)); i++) {
        const char *needs = cb_ruler_needs(r, g);
        if (!picked(t->o, cb_ruler_name(r)))
            continue;
        if (needs)
            cb_log_note("%s: left out, needs %s", cb_ruler_name(r), needs);
        else
            TRY(cb_gen_ruler(g, r, &t->items));
    }
    return t->items.n ? CB_OK : cb_usage("--tasks: none of them can run");
}

static int make_ruler(struct tasks *t)
{
    struct made_up m;
    int rc;

    TRY(check_picked(t->o, ruler_name, NULL));
    rc = made_up(t, &m);
    if (!rc)
        rc = read_haystack(t);
    m.g.haystack = &t->hay;
    m.g.qa_file = cb_opt_text(t->o, ARG_QA_FILE);
    if (!rc)
        rc = make_ruler_tasks(t, &m.g);
    made_up_free(&m);
    return rc;
}

/* ---- items of files ---- */

static int by_task(const void *a, const void *b, void *arg)
{
    const struct item *at = arg;
    const int i = *(const int *)a, j = *(const int *)b, d = strcmp(at[i].task, at[j].task);

    return d ? d : i - j;
}

/* Marks --items items of each task in chosen[n], the same ones for the same seed. */
static int choose(const struct tasks *t, char *chosen)
{
    const struct item_list *all = &t->items;
    const int want = cb_opt_int(t->o, ARG_ITEMS);
    int *order = cb_calloc(2 * (size_t)all->n + 1, sizeof *order), *pick = order + all->n;

    if (!order)
        return CB_ENOMEM;
    for (int i = 0; i < all->n; i++)
        order[i] = i;
    qsort_r(order, (size_t)all->n, sizeof *order, by_task, all->at);
    for (int from = 0, to; from < all->n; from = to) {
        const char *task = all->at[order[from]].task;
        struct rng r = cb_rng_for((uint64_t)cb_opt_int64(t->o, ARG_TASK_SEED), task, 0, 0, 0);
        int n;
        for (to = from + 1; to < all->n && !strcmp(all->at[order[to]].task, task);)
            to++;
        n = want < to - from ? want : to - from;
        cb_rng_choose(&r, pick, n, to - from);
        for (int k = 0; k < n; k++)
            chosen[order[from + pick[k]]] = 1;
    }
    free(order);
    return CB_OK;
}

/* Keeps --items items of each task, in their order. */
static int sample(struct tasks *t)
{
    struct item_list kept = { .n_bad = t->items.n_bad };
    char *chosen = cb_calloc((size_t)t->items.n + 1, 1);
    int rc = chosen ? choose(t, chosen) : CB_ENOMEM;

    for (int i = 0; i < t->items.n && !rc; i++)
        if (chosen[i]) {
            rc = cb_item_add(&kept, &t->items.at[i]);
            t->items.at[i] = (struct item){ 0 };
        }
    free(chosen);
    cb_item_list_free(&t->items);
    t->items = kept;
    return rc;
}

static int is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int is_jsonl(const struct dirent *d)
{
    const size_t n = strlen(d->d_name);
    return n > 6 && !strcmp(d->d_name + n - 6, ".jsonl");
}

static int read_folder(struct tasks *t, const char *path)
{
    struct dirent **list;
    const int n = scandir(path, &list, is_jsonl, alphasort), before = t->items.n;
    int rc = CB_OK;

    if (n < 0)
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char file[PATH_MAX], task[256];
        snprintf(task, sizeof task, "%.*s", (int)strlen(list[i]->d_name) - 6, list[i]->d_name);
        if (!rc && picked(t->o, task)) {
            if (snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name) < (int)sizeof file)
                rc = cb_item_read(file, on_warn, NULL, &t->items);
        }
        free(list[i]);
    }
    free(list);
    if (!rc && t->items.n == before)
        rc = cb_fail(CB_EIO, "%s: no .jsonl file of these tasks", path);
    return rc;
}

static int read_files(struct tasks *t)
{
    if (!t->o->n_operand)
        return cb_usage("no file given: ctxbank %s FILE.jsonl", t->o->cmd->name);
    for (int i = 0; i < t->o->n_operand; i++)
        TRY(is_folder(t->o->operand[i]) ? read_folder(t, t->o->operand[i])
                                        : cb_item_read(t->o->operand[i], on_warn, NULL, &t->items));
    return cb_opt_set(t->o, ARG_ITEMS) ? sample(t) : CB_OK;
}

static const char *template_name(const void *ctx, int i)
{
    const struct template *x = cb_template_at(ctx, i);
    return x ? x->name : NULL;
}

static int read_longbench(struct tasks *t)
{
    struct templates *all;
    int rc;

    TRY(cb_templates_open(&all));
    rc = check_picked(t->o, template_name, all);
    cb_templates_close(all);
    return rc ? rc : read_files(t);
}

/* ---- the run ---- */

static int asked_to_stop(void *arg)
{
    (void)arg;
    return cb_interrupted();
}

static void on_progress(void *arg, const char *task, int64_t done, int64_t total)
{
    struct tasks *t = arg;
    snprintf(t->bar.extra, sizeof t->bar.extra, "%.40s", task);
    cb_progress_step(&t->bar, done, total);
}

/* Reports a wrong policy option before any work is done. */
static int check_policies(struct tasks *t)
{
    for (int i = 0; i < t->run.n_policy; i++) {
        const struct cb_session_params p = { .n_ctx = 1024,
                                             .type_k = t->run.type_k,
                                             .type_v = t->run.type_v,
                                             .policy = t->run.policy[i],
                                             .prefill = t->run.prefill };
        cb_session *s;
        TRY(cb_session_open(t->e.model, &p, &s));
        cb_session_close(s);
    }
    return CB_OK;
}

/* Most bytes that the sessions of a shared prefill may hold: half of the free memory. */
static uint64_t share_bytes(void)
{
    const long pages = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size / 2 : (uint64_t)1 << 30;
}

/* Notes why the model has no known chat form; fails if one is needed. */
static int no_form(const struct tasks *t, int needed)
{
    char *text;
    const int rc = cb_chat_text(t->e.model, NULL, NULL, 0, 0, &text);

    return needed ? rc : CB_OK;
}

/* --bank: it must fit one of those who answer, or it would be of no use. */
static int open_bank(struct tasks *t)
{
    struct run *r = &t->run;
    const char *path = cb_opt_text(t->o, ARG_BANK);
    const struct answerer full = cb_run_full(r, QUESTION_AWARE);
    int fits;

    if (!path)
        return CB_OK;
    TRY(cb_session_load(r->model, path, 0, &t->e.session));
    r->bank_path = path;
    r->bank = t->e.session;
    fits = cb_ask_bank_is_of(r->bank, &full);
    for (int i = 0; i < r->n_policy; i++) {
        const struct answerer by = cb_run_policy(r, i, QUESTION_AWARE);
        fits |= cb_ask_bank_is_of(r->bank, &by);
    }
    return fits ? CB_OK
                : cb_usage("--bank: %s was saved with settings that are not asked ('ctxbank bank "
                           "show' tells them)",
                           path);
}

static int set_run(struct tasks *t)
{
    const struct opts *o = t->o;
    struct run *r = &t->run;
    const int truncate = cb_opt_set(o, ARG_TOO_LONG) ? cb_opt_is(o, ARG_TOO_LONG, "truncate")
                                                     : o->cmd == &cb_cmd_eval_longbench;

    *r = (struct run){
        .model = t->e.model,
        .chat = cb_opt_is(o, ARG_USE_CHAT, "always")  ? CHAT_ALWAYS
                : cb_opt_is(o, ARG_USE_CHAT, "never") ? CHAT_NEVER
                                                      : CHAT_AUTO,
        .type_k = cb_opt_text(o, ARG_TYPE_K),
        .type_v = cb_opt_text(o, ARG_TYPE_V),
        .prefill = cb_opt_text(o, ARG_PREFILL),
        .chunk = cb_opt_int(o, ARG_CHUNK),
        .n_ctx = cb_opt_int(o, ARG_CTX) ? cb_opt_int(o, ARG_CTX) : t->e.info.n_ctx_train,
        .aware = !cb_opt_is(o, ARG_QUESTION, "blind"),
        .blind = !cb_opt_is(o, ARG_QUESTION, "aware"),
        .truncate = truncate,
        .share_bytes = share_bytes(),
        .stop = asked_to_stop,
        .note = on_warn,
        .progress = on_progress,
        .arg = t,
    };
    r->policy = cb_opt_texts(o, ARG_POLICIES, &r->n_policy);
    snprintf(r->who, sizeof r->who, "%.120s %.30s", t->e.info.name, t->e.info.quant);
    r->form = r->chat != CHAT_NEVER ? t->e.info.chat_form : NULL;
    if (r->chat != CHAT_NEVER && !r->form) {
        TRY(no_form(t, r->chat == CHAT_ALWAYS));
        cb_log_note("%s; prompts go in as plain text", cb_error());
    }
    TRY(check_policies(t));
    return open_bank(t);
}

/* 1: every answer to the item has more than n tokens; or negative status */
static int is_longer(struct tasks *t, const struct item *it, int n)
{
    for (int i = 0; i < it->n_answer; i++) {
        const int have = count_tokens(t, it->answer[i], strlen(it->answer[i]));
        if (have <= n)
            return have < 0 ? have : 0;
    }
    return it->n_answer > 0;
}

/* Answers are cut as the command line says; where that cuts what is asked for, a note says so. */
static int set_max_new(struct tasks *t)
{
    const int n = cb_opt_int(t->o, ARG_MAX_NEW);
    int n_longer = 0;

    for (int i = 0; i < t->items.n && cb_opt_set(t->o, ARG_MAX_NEW); i++) {
        const int longer = is_longer(t, &t->items.at[i], n);
        if (longer < 0)
            return longer;
        n_longer += longer;
        t->items.at[i].max_new = n;
    }
    if (n_longer)
        cb_log_note("-n %d: the answers to %d of %d items have more tokens and are cut", n,
                    n_longer, t->items.n);
    return CB_OK;
}

static int print_rows(struct tasks *t)
{
    const char *plot = cb_opt_text(t->o, ARG_PLOT);
    struct rows rows;
    int rc = cb_rows_make(&t->run, &t->items, &t->have, &rows);

    if (!rc && cb_opt_is(t->o, ARG_TABLE, "json"))
        rc = cb_rows_json(&rows, &t->run, t->items.n_bad, stdout);
    else if (!rc && cb_opt_is(t->o, ARG_TABLE, "csv"))
        cb_rows_csv(&rows, stdout);
    else if (!rc)
        cb_rows_md(&rows, stdout);
    if (!rc && plot)
        rc = cb_plot(plot, &t->run, &t->items, &t->have, &rows);
    cb_rows_free(&rows);
    return rc;
}

/* The table is there, but a caller that looks at the status alone must not take it for the whole.
 */
static int all_asked(const struct tasks *t)
{
    if (t->items.n_bad)
        return cb_fail(CB_EFORMAT, "the table is not of all lines: %d could not be read",
                       t->items.n_bad);
    if (t->items.n && t->run.n_long == t->items.n)
        return cb_fail(CB_EFULL, "all items are too long for the context of %d (-c, --too-long)",
                       t->run.n_ctx);
    return CB_OK;
}

static int ask(struct tasks *t)
{
    int rc;

    TRY(cb_new_file_check(cb_opt_text(t->o, ARG_PLOT))); /* before the work, not after it */
    TRY(cb_answers_open(cb_opt_text(t->o, ARG_ANSWERS), on_warn, NULL, &t->have));
    if (t->have.n)
        cb_log_note("%s: %d answers are there already", t->have.path, t->have.n);
    cb_progress_start(&t->bar, cb_progress_when(t->o), "eval", "tokens");
    rc = cb_run(&t->run, &t->items, &t->have);
    cb_progress_end(&t->bar);
    if (t->run.bank)
        cb_log_note("%s: %d answers began with it", t->run.bank_path, t->run.n_banked);
    if (t->run.n_long)
        cb_log_note("%d items were too long for the context of %d and were skipped (--too-long)",
                    t->run.n_long, t->run.n_ctx);
    if (rc && rc != CB_ECANCEL)
        return rc;
    if (rc)
        cb_log_note("stopped; the table shows what was asked%s",
                    t->have.path ? ", and the same command goes on from here" : "");
    TRY(print_rows(t));
    return rc ? rc : all_asked(t);
}

static int evaluate(const struct opts *o, int (*make)(struct tasks *t))
{
    struct tasks t = { .o = o, .have = { .fd = -1 } };
    int rc;

    cb_interrupt_catch();
    rc = cb_engine_open(o, &t.e);
    if (!rc)
        rc = set_run(&t);
    if (!rc)
        rc = make(&t);
    if (!rc)
        rc = set_max_new(&t);
    if (!rc)
        rc = ask(&t);
    cb_answers_close(&t.have);
    cb_item_list_free(&t.items);
    cb_haystack_free(&t.hay);
    cb_engine_close(&t.e);
    return cb_interrupt_status(rc);
}

/* ---- the commands ---- */

#define COMMON                                                                                     \
    (SET_TASKS | SET_MODEL | SET_ENGINE | SET_CTX | SET_POLICIES | SET_PROGRESS | SET_GENERAL)
#define COMMAND(id, word, fn, text, own, usage, most)                                              \
    static int run_##id(const struct opts *o)                                                      \
    {                                                                                              \
        return evaluate(o, fn);                                                                    \
    }                                                                                              \
    const struct cmd cb_cmd_eval_##id = { .name = "eval " word,                                    \
                                          .operands = usage,                                       \
                                          .max_operands = most,                                    \
                                          .brief = text,                                           \
                                          .sets = (own) | COMMON,                                  \
                                          .run = run_##id };

COMMAND(needle, "needle", make_needles, "ask for a number that is hidden in a text",
        SET_OWN_NEEDLE | SET_MADE, "", 0)
COMMAND(passkey, "passkey", make_passkeys, "ask for a pass key that is hidden in repeated text",
        SET_MADE, "", 0)
COMMAND(ruler, "ruler", make_ruler, "ask RULER's 13 tasks at given lengths",
        SET_OWN_RULER | SET_PICK | SET_MADE, "", 0)
COMMAND(2stage, "2stage", make_2stage, "ask for a sum, and for what a dictionary says of it",
        SET_OWN_2STAGE | SET_MADE, "", 0)
COMMAND(longbench, "longbench", read_longbench,
        "ask the questions of LongBench, InfiniteBench and L-Eval", SET_PICK, "FILE|FOLDER...",
        INT_MAX)
COMMAND(file, "file", read_files, "ask your own questions, from JSON lines",
        SET_PICK | SET_BANK_FILE, "FILE|FOLDER...", INT_MAX)
