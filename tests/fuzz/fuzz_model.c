/* SPDX-License-Identifier: MIT */
/* fuzz_model.c - a tiny model for targets that need one. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz_model.h"

void cb_fuzz_model_save(const char *family, char *path, size_t cap)
{
    struct tiny t = cb_tiny_small(family);

    snprintf(path, cap, "/tmp/fuzz_model.%d.tmp", (int)getpid());
    t.hd = 32;
    t.n_embd = t.hd * t.n_head;
    cb_tiny_save(&t, path);
}

cb_model *cb_fuzz_model(void)
{
    const struct cb_model_params p = { .n_threads = 1 };
    static cb_model *m;
    char path[64];

    if (m)
        return m;
    cb_fuzz_model_save("llama", path, sizeof path);
    if (cb_model_open(path, &p, &m)) {
        fprintf(stderr, "%s\n", cb_error());
        abort();
    }
    unlink(path);
    return m;
}
