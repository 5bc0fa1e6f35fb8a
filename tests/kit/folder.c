/* SPDX-License-Identifier: MIT */
/* folder.c - a temporary folder of files for a test. */
#include "folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

const char *cb_folder_make(const char *name)
{
    snprintf(root, sizeof root, "%s.XXXXXX", name);
    ck_assert_ptr_nonnull(mkdtemp(root));
    return root;
}

void cb_folder_remove(void)
{
    char cmd[128];
    FILE *p;

    snprintf(cmd, sizeof cmd, "rm -r %s", root);
    p = popen(cmd, "w");
    ck_assert(p && !pclose(p));
}

const char *cb_folder_put(const char *name, const char *text)
{
    static char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *c = path + strlen(root) + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(path, 0755);
            *c = '/';
        }
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    return path;
}
