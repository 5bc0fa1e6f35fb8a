/* SPDX-License-Identifier: MIT */
/* make_manual.c - writes sections of the manual out of the program's tables (tools/update-docs).
 * usage: make-manual man COMMAND|GROUP|options, or make-manual methods SECTION */
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "methods_doc.h"
#include "opts_man.h"

static int options(const char *name)
{
    if (!strcmp(name, "options")) {
        cb_opts_man_shared(NULL, stdout);
        return 0;
    }
    for (const struct cmd *const *cmd = cb_cmd_all; *cmd; cmd++)
        if (!strcmp((*cmd)->name, name)) {
            cb_opts_man(*cmd, stdout);
            return 0;
        }
    cb_opts_man_shared(name, stdout); /* a group */
    return 0;
}

int main(int argc, char **argv)
{
    int rc = 2;

    if (argc == 3 && !strcmp(argv[1], "man"))
        rc = options(argv[2]);
    else if (argc == 3 && !strcmp(argv[1], "methods"))
        rc = cb_methods_man(argv[2], stdout) ? 0 : 2;
    if (rc)
        fprintf(stderr, "usage: make-manual man COMMAND|GROUP|options, or methods SECTION\n");
    return fclose(stdout) ? 1 : rc;
}
