/* SPDX-License-Identifier: MIT */
/* main.c - the table of sub-commands, and where the program starts. */
#include "base/json_lenient.h"
#include "cmd.h"

static const struct cmd *const table[] = {
    &cb_cmd_run,
    &cb_cmd_chat,
    &cb_cmd_serve,
    &cb_cmd_tokenize,
    &cb_cmd_embed,
    &cb_cmd_info,
    &cb_cmd_bank_save,
    &cb_cmd_bank_show,
    &cb_cmd_bank_verify,
    &cb_cmd_bank_list,
    &cb_cmd_bank_rm,
    &cb_cmd_bench,
    &cb_cmd_eval_perplexity,
    &cb_cmd_eval_continuation,
    &cb_cmd_eval_kld,
    &cb_cmd_eval_attention,
    &cb_cmd_eval_lazy,
    &cb_cmd_eval_needle,
    &cb_cmd_eval_passkey,
    &cb_cmd_eval_ruler,
    &cb_cmd_eval_2stage,
    &cb_cmd_eval_longbench,
    &cb_cmd_eval_file,
    &cb_cmd_calibrate_filter,
    &cb_cmd_calibrate_lazy,
    &cb_cmd_calibrate_similarity,
    &cb_cmd_calibrate_density,
    &cb_cmd_calibrate_pyramid,
    &cb_cmd_calibrate_heads,
    &cb_cmd_quantize,
    &cb_cmd_complete,
    &cb_cmd_dump,
    NULL,
};

int main(int argc, char **argv)
{
    cb_json_watch();
    return cb_cmd_main(table, argc, argv);
}
