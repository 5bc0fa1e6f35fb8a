/* SPDX-License-Identifier: MIT */
/* eval_2stage.c - ctxbank eval 2stage: asks for a sum, and for what a dictionary says of it. */
#include "base/err.h"
#include "task_run.h"

static int make_shown(struct tasks *t, const struct gen *g)
{
    int n, most = cb_opt_set(t->o, ARG_MOST_SUM) ? cb_opt_int(t->o, ARG_MOST_SUM) : 0;
    const int64_t *entries = cb_opt_ints(t->o, ARG_ENTRIES, &n);

    for (int i = 0; i < n; i++)
        TRY(cb_gen_2stage_shown(g, (int)entries[i], most, &t->items));
    return CB_OK;
}

static int make(struct tasks *t, const struct gen *g)
{
    if (cb_opt_set(t->o, ARG_ENTRIES))
        return make_shown(t, g);
    if (cb_opt_flag(t->o, ARG_PUBLISHED))
        return cb_gen_2stage_published(g, &t->items);
    if (!cb_opt_is(t->o, ARG_COT, "yes"))
        TRY(cb_gen_2stage(g, 0, &t->items));
    return cb_opt_is(t->o, ARG_COT, "no") ? CB_OK : cb_gen_2stage(g, 1, &t->items);
}

static int check_options(const struct opts *o)
{
    const int published = cb_opt_flag(o, ARG_PUBLISHED), shown = cb_opt_set(o, ARG_ENTRIES);

    if (published && shown)
        return cb_usage("--published and --entries exclude each other");
    if ((published || shown) && (cb_opt_set(o, ARG_COT) || cb_opt_set(o, ARG_LENGTH)))
        return cb_usage("--%s: sets what --%s would", published ? "published" : "entries",
                        cb_opt_set(o, ARG_COT) ? "cot" : "length");
    return cb_opt_set(o, ARG_MOST_SUM) && !shown ? cb_usage("--most-sum: it needs --entries")
                                                 : CB_OK;
}

static int make_2stage(struct tasks *t)
{
    struct made_up m;
    int rc;

    TRY(check_options(t->o));
    rc = cb_made_up(t, &m);
    if (!rc)
        rc = make(t, &m.g);
    cb_made_up_free(&m);
    return rc;
}

static int run(const struct opts *o)
{
    return cb_task_run(o, make_2stage, 0);
}

const struct cmd cb_cmd_eval_2stage = {
    .name = "eval 2stage",
    .operands = "",
    .brief = "ask for a sum, and for what a dictionary says of it",
    .sets = SET_OWN_2STAGE | SET_MADE | CB_TASK_SETS,
    .run = run,
};
