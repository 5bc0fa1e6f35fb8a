/* SPDX-License-Identifier: MIT */
/* eval_needle.c - ctxbank eval needle: asks for a number that is hidden in a text. */
#include "base/err.h"
#include "task_run.h"

static int make_needles(struct tasks *t)
{
    struct made_up m;
    int rc = cb_made_up(t, &m);

    m.g.n_needle = cb_opt_int(t->o, ARG_NEEDLES);
    if (!cb_opt_set(t->o, ARG_ITEMS))
        m.g.items = 1;
    if (!rc)
        rc = cb_made_up_ints(t->o, ARG_DEPTH, &m.depth, &m.g.n_depth);
    m.g.depth = m.depth;
    if (!rc)
        rc = cb_made_up_haystack(t, &m);
    if (!rc)
        rc = cb_gen_needle(&m.g, &t->items);
    cb_made_up_free(&m);
    return rc;
}

static int run(const struct opts *o)
{
    return cb_task_run(o, make_needles, 0);
}

const struct cmd cb_cmd_eval_needle = {
    .name = "eval needle",
    .operands = "",
    .brief = "ask for a number that is hidden in a text",
    .sets = SET_OWN_NEEDLE | SET_MADE | CB_TASK_SETS,
    .run = run,
};
