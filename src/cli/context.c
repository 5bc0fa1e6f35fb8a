/* SPDX-License-Identifier: MIT */
/* context.c - where a timeline begins: empty, in a saved bank (--bank), or in what a folder
 * remembers (--bank-dir). */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "cli/output/log.h"
#include "cmd.h"

/* ---- --bank ---- */

/* Refuses an option whose value is not the one that the bank was saved with. */
static int check_saved(const struct opts *o, const char *path, const json_t *session)
{
    static const struct {
        enum opt_id id;
        const char *key;
    } list[] = { { ARG_PREFILL, "prefill" }, { ARG_TYPE_K, "type_k" }, { ARG_TYPE_V, "type_v" } };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const char *saved = json_string_value(json_object_get(session, list[i].key));
        const char *asked = cb_opt_text(o, list[i].id);
        if (cb_opt_set(o, list[i].id) && saved && strcmp(saved, asked))
            return cb_usage("--%s: %s was saved with %s, not %s", cb_opt_table[list[i].id].name,
                            path, saved, asked);
    }
    return CB_OK;
}

const char *cb_bank_policy(const struct opts *o)
{
    return cb_opt_set(o, ARG_POLICY) ? cb_opt_text(o, ARG_POLICY) : NULL;
}

static int open_bank(const struct opts *o, struct engine *e, const char *path, int n_ctx)
{
    const char *policy = cb_bank_policy(o);
    const double start = cb_now_s();
    char *about;
    json_t *json;
    int rc;

    if (cb_auto_is(policy))
        return cb_usage("--policy auto: a saved bank has its policy; name one, or none");
    TRY(cb_bank_describe(path, &about));
    rc = cb_json_parse(about, strlen(about), path, &json);
    free(about);
    TRY(rc);
    rc = check_saved(o, path, json_object_get(json, "session"));
    json_decref(json);
    TRY(rc);
    cb_session_close(e->session);
    e->session = NULL;
    TRY(cb_session_load_as(e->model, path, n_ctx, policy, &e->session));
    e->n_ctx = cb_session_n_ctx(e->session);
    cb_log_detail("bank: %s, %d tokens, opened in %.3f s", path, cb_session_len(e->session),
                  cb_now_s() - start);
    return CB_OK;
}

static int common(const int32_t *a, const int32_t *b, int n)
{
    int i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* How many tokens of the prompt the session holds. A prompt that begins as the saved text does
 * needs only the rest of it fed; where they part, as the last token may when more text follows it,
 * the session goes back. Any other prompt follows the saved text. */
static int skip_saved(struct engine *e, const int32_t *ids, int n)
{
    const int held = cb_session_len(e->session);
    const int same = common(ids, cb_session_tokens(e->session), held < n ? held : n);

    if (same && same >= held / 2) {
        const int skip = same < held && same == n ? same - 1 : same; /* the last gives logits */
        TRY(cb_session_truncate(e->session, skip));
        return skip;
    }
    return n && held && e->info.add_bos && *ids == e->info.bos; /* the saved text has begun so */
}

/* ---- --bank-dir ---- */

static int open_dir(const struct opts *o, struct engine *e)
{
    const struct cb_bank_dir_params p = { (uint64_t)cb_opt_int64(o, ARG_BANK_DIR_SIZE) };
    const char *path = cb_opt_text(o, ARG_BANK_DIR);

    if (!path || e->dir || e->no_dir || cb_opt_flag(o, ARG_DRY_RUN))
        return CB_OK;
    e->no_dir = cb_bank_dir_open(path, &p, &e->dir) != CB_OK;
    if (e->no_dir)
        cb_log_note("%s; nothing is remembered", cb_error());
    return CB_OK;
}

static int look_up(const struct opts *o, struct engine *e, const int32_t *ids, int n, int n_ctx)
{
    const double start = cb_now_s();
    struct cb_session_params p;
    int n_hit;

    TRY(cb_engine_params(o, e, cb_engine_policy(o, e), n_ctx, &p));
    cb_session_close(e->session);
    e->session = NULL;
    TRY(cb_bank_dir_find(e->dir, e->model, &p, ids, n, &e->session, &n_hit));
    e->n_ctx = cb_session_n_ctx(e->session);
    cb_log_detail("bank folder: %d of %d tokens remembered, looked up in %.3f s", n_hit, n,
                  cb_now_s() - start);
    return n_hit;
}

void cb_context_remember(struct engine *e)
{
    const double start = cb_now_s();

    if (!e->dir)
        return;
    if (cb_bank_dir_put(e->dir, e->session))
        cb_log_note("%s; the prompt is not remembered", cb_error());
    else
        cb_log_detail("bank folder: prompt remembered in %.3f s", cb_now_s() - start);
}

/* ---- both, or neither ---- */

/* Returns how many tokens of the prompt the session holds. */
static int begin(const struct opts *o, struct engine *e, int n_ctx, const int32_t *ids, int n)
{
    const char *bank = cb_opt_text(o, ARG_BANK);

    if (bank) {
        if (!e->is_new)
            TRY(open_bank(o, e, bank, n_ctx));
        return skip_saved(e, ids, n);
    }
    TRY(open_dir(o, e));
    if (e->dir)
        return look_up(o, e, ids, n, n_ctx);
    if (e->session)
        cb_session_clear(e->session);
    else
        TRY(cb_engine_session(o, e, cb_engine_policy(o, e), n_ctx));
    return 0;
}

int cb_context_begin(const struct opts *o, struct engine *e, int n_ctx, int32_t *ids, int *n)
{
    const int skip = begin(o, e, n_ctx, ids, *n);

    TRY(skip);
    e->is_new = !*n;
    *n -= skip;
    if (skip)
        memmove(ids, ids + skip, (size_t)*n * sizeof *ids);
    e->n_begun = cb_session_len(e->session);
    return CB_OK;
}

void cb_note_long_context(const struct engine *e)
{
    if (e->n_ctx > e->info.n_ctx_train)
        cb_log_note("context %d is more than the %d that the model was trained for", e->n_ctx,
                    e->info.n_ctx_train);
}
