/* SPDX-License-Identifier: MIT */
/* fuzz_lora.c - adapters for a tiny model. */
#include <stdlib.h>

#include "fuzz_file.h"
#include "fuzz_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char path[64];
    const struct cb_adapter a = { .path = cb_fuzz_file(data, n), .scale = 1 };
    const struct cb_model_params p = { .n_threads = 1, .adapters = &a, .n_adapter = 1 };
    cb_model *m;

    if (!*path)
        cb_fuzz_model_save("llama", path, sizeof path);
    if (!cb_model_open(path, &p, &m)) {
        const struct cb_session_params sp = { .n_ctx = 8, .chunk = 4 };
        cb_session *s;
        if (!cb_session_open(m, &sp, &s)) {
            (void)cb_session_decode(s, 3);
            cb_session_close(s);
        }
        cb_model_close(m);
    }
    return 0;
}
