/* SPDX-License-Identifier: MIT */
/* user_cache.c - folders of what can be made again: compiled kernels, figures of models. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd.h"

const char *cb_user_cache(const char *name, char *path, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const int n = xdg && *xdg == '/' ? snprintf(path, size, "%s", xdg)
                  : home && *home    ? snprintf(path, size, "%s/.cache", home)
                                     : -1;
    const char *const below[] = { "", "/ctxbank", "/", name };
    size_t used = n < 0 ? size : (size_t)n;

    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        if (used + strlen(below[i]) + 1 > size)
            return NULL;
        memcpy(path + used, below[i], strlen(below[i]) + 1);
        used += strlen(below[i]);
        if (i != 2 && mkdir(path, 0777) && errno != EEXIST)
            return NULL;
    }
    return path;
}
