/* SPDX-License-Identifier: MIT */
/* eval_2stage.c - ctxbank eval 2stage: asks for a sum, and for what a dictionary says of it. */
#include "task_run.h"

static int make_2stage(struct tasks *t)
{
    const int published = cb_opt_flag(t->o, ARG_PUBLISHED);
    struct made_up m;
    int rc;

    if (published && (cb_opt_set(t->o, ARG_COT) || cb_opt_set(t->o, ARG_LENGTH)))
        return cb_usage("--published: sets what --%s would",
                        cb_opt_set(t->o, ARG_COT) ? "cot" : "length");
    rc = cb_made_up(t, &m);
    if (!rc && published)
        rc = cb_gen_2stage_published(&m.g, &t->items);
    if (!rc && !published && !cb_opt_is(t->o, ARG_COT, "yes"))
        rc = cb_gen_2stage(&m.g, 0, &t->items);
    if (!rc && !published && !cb_opt_is(t->o, ARG_COT, "no"))
        rc = cb_gen_2stage(&m.g, 1, &t->items);
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
