/* SPDX-License-Identifier: MIT */
/* data.c - finds files that are installed with the program. */
#include "data.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static int readable(const char *dir, const char *sub, const char *name, char *path, size_t cap)
{
    const int n = snprintf(path, cap, "%s%s/%s", dir, sub, name);
    return n > 0 && (size_t)n < cap && !access(path, R_OK);
}

/* The folder of the running program; "" when the system does not say. */
static void own_folder(char *dir, size_t cap)
{
    const ssize_t n = readlink("/proc/self/exe", dir, cap - 1);
    char *slash;

    dir[n > 0 ? n : 0] = '\0';
    slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
}

int cb_data_find(const char *name, char *path, size_t cap)
{
    static const char *const beside[] = { "/data", "/doc/examples", "/../data", "/../doc/examples",
                                          "/../share/ctxbank" }; /* an install that was moved */
    const char *env = getenv("CTXBANK_DATA");
    char own[PATH_MAX];

    if (env && *env) {
        if (readable(env, "", name, path, cap) ||
            readable(env, "/../doc/examples", name, path, cap))
            return CB_OK;
        return cb_fail(CB_EIO, "%s: not in the folder that CTXBANK_DATA names, %s", name, env);
    }
    if (readable(CB_PKGDATADIR, "", name, path, cap))
        return CB_OK;
    own_folder(own, sizeof own);
    for (size_t i = 0; *own && i < sizeof beside / sizeof *beside; i++)
        if (readable(own, beside[i], name, path, cap))
            return CB_OK;
    return cb_fail(CB_EIO, "%s: not in %s; CTXBANK_DATA names another folder", name, CB_PKGDATADIR);
}
