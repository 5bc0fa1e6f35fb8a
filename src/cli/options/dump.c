/* SPDX-License-Identifier: MIT */
/* dump.c - ctxbank dump: manual sections out of the tables of options and methods (for the build)
 */
#include <string.h>

#include "cli/cmd.h"
#include "methods_doc.h"

static int run(const struct opts *o)
{
    const struct cmd *const *cmd = cb_cmd_table();
    const char *what = o->operand[0], *name = o->operand[1];

    if (!strcmp(what, "methods"))
        return cb_methods_man(name, stdout) ? 0 : cb_usage("%s: no such section", name);
    if (strcmp(what, "man"))
        return cb_usage("%s: neither man nor methods", what);
    if (!strcmp(name, "options")) {
        cb_opts_man_shared(NULL, stdout);
        return 0;
    }
    for (; *cmd; cmd++)
        if (!strcmp((*cmd)->name, name)) {
            cb_opts_man(*cmd, stdout);
            return 0;
        }
    cb_opts_man_shared(name, stdout); /* a group */
    return 0;
}

const struct cmd cb_cmd_dump = {
    .name = "dump",
    .operands = "man COMMAND|GROUP|options | methods SECTION",
    .min_operands = 2,
    .max_operands = 2,
    .brief = "write a manual section",
    .sets = SET_GENERAL,
    .run = run,
    .hidden = 1,
};
