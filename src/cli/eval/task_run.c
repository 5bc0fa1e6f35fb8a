/* SPDX-License-Identifier: MIT */
/* task_run.c - asks tasks under each policy and prints their scores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/free_memory.h"
#include "base/linux_flags.h"
#include "base/new_file.h"
#include "cli/output/log.h"
#include "cli/output/plot.h"
#include "eval/ask_bank.h"
#include "task_run.h"

void cb_task_warn(void *arg, const char *text)
{
    (void)arg;
    cb_log_note("%s", text);
}

int cb_task_tokens(void *arg, const char *text, size_t n)
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

static int choose(void *arg, struct cb_session_params *p)
{
    struct tasks *t = arg;
    return cb_auto_is(p->policy) ? cb_auto_choose(t->o, &t->e, p) : CB_OK;
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
        if (cb_auto_is(p.policy)) {
            TRY(cb_auto_check(p.policy));
            continue;
        }
        TRY(cb_session_open(t->e.model, &p, &s));
        cb_session_close(s);
    }
    return CB_OK;
}

/* Most bytes that the sessions of a shared prefill may hold: half of the free memory. */
static uint64_t share_bytes(void)
{
    const uint64_t there = cb_free_bytes();

    return there ? there / 2 : (uint64_t)1 << 30;
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
    const int truncate =
        cb_opt_set(o, ARG_TOO_LONG) ? cb_opt_is(o, ARG_TOO_LONG, "truncate") : t->run.truncate;

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
        .choose = choose,
        .stop = asked_to_stop,
        .note = cb_task_warn,
        .progress = on_progress,
        .arg = t,
    };
    r->policy = cb_engine_policies(o, &t->e, &r->n_policy);
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
        const int have = cb_task_tokens(t, it->answer[i], strlen(it->answer[i]));
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
    TRY(cb_answers_open(cb_opt_text(t->o, ARG_ANSWERS), cb_task_warn, NULL, &t->have));
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
                    t->have.path ? ", and the same command continues from here" : "");
    TRY(print_rows(t));
    return rc ? rc : all_asked(t);
}

int cb_task_run(const struct opts *o, int (*make)(struct tasks *t), int truncate)
{
    struct tasks t = { .o = o, .run = { .truncate = truncate }, .have = { .fd = -1 } };
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
