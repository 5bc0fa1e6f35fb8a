/* SPDX-License-Identifier: MIT */
/* eval_ruler.c - ctxbank eval ruler: asks RULER's 13 tasks at given lengths. */
#include "base/err.h"
#include "cli/output/log.h"
#include "task_run.h"

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
        if (!cb_task_picked(t->o, cb_ruler_name(r)))
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

    TRY(cb_task_check_picked(t->o, ruler_name, NULL));
    rc = cb_made_up(t, &m);
    if (!rc)
        rc = cb_made_up_haystack(t, &m);
    m.g.qa_file = cb_opt_text(t->o, ARG_QA_FILE);
    if (!rc)
        rc = make_ruler_tasks(t, &m.g);
    cb_made_up_free(&m);
    return rc;
}

static int run(const struct opts *o)
{
    return cb_task_run(o, make_ruler, 0);
}

const struct cmd cb_cmd_eval_ruler = {
    .name = "eval ruler",
    .operands = "",
    .brief = "ask RULER's 13 tasks at given lengths",
    .sets = SET_OWN_RULER | SET_PICK | SET_MADE | CB_TASK_SETS,
    .run = run,
};
