/* SPDX-License-Identifier: MIT */
/* eval_passkey.c - ctxbank eval passkey: asks for a pass key that is hidden in repeated text. */
#include "task_run.h"

static int make_passkeys(struct tasks *t)
{
    struct made_up m;
    int rc = cb_made_up(t, &m);

    if (!rc)
        rc = cb_gen_passkey(&m.g, &t->items);
    cb_made_up_free(&m);
    return rc;
}

static int run(const struct opts *o)
{
    return cb_task_run(o, make_passkeys, 0);
}

const struct cmd cb_cmd_eval_passkey = {
    .name = "eval passkey",
    .operands = "",
    .brief = "ask for a pass key that is hidden in repeated text",
    .sets = SET_MADE | CB_TASK_SETS,
    .run = run,
};
