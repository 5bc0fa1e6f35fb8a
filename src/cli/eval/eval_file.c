/* SPDX-License-Identifier: MIT */
/* eval_file.c - ctxbank eval file: asks your own questions. */
#include <limits.h>

#include "task_run.h"

static int run(const struct opts *o)
{
    return cb_task_run(o, cb_item_files, 0);
}

const struct cmd cb_cmd_eval_file = {
    .name = "eval file",
    .operands = "FILE|FOLDER...",
    .max_operands = INT_MAX,
    .brief = "ask your own questions, from JSON lines",
    .example = "-m model.gguf --policy full --policy snapkv:budget=1024 questions.jsonl",
    .sets = SET_PICK | SET_BANK_FILE | CB_TASK_SETS,
    .run = run,
};
