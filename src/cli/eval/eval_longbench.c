/* SPDX-License-Identifier: MIT */
/* eval_longbench.c - ctxbank eval longbench: asks the questions of LongBench, InfiniteBench and
 * L-Eval. */
#include <limits.h>

#include "base/err.h"
#include "eval/published.h"
#include "task_run.h"

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
    rc = cb_task_check_picked(t->o, template_name, all);
    cb_templates_close(all);
    return rc ? rc : cb_item_files(t);
}

static int run(const struct opts *o)
{
    return cb_task_run(o, read_longbench, 1);
}

const struct cmd cb_cmd_eval_longbench = {
    .name = "eval longbench",
    .operands = "FILE|FOLDER...",
    .max_operands = INT_MAX,
    .brief = "ask the questions of LongBench, InfiniteBench and L-Eval",
    .sets = SET_PICK | CB_TASK_SETS,
    .run = run,
};
