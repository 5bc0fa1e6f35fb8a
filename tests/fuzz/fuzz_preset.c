/* SPDX-License-Identifier: MIT */
/* fuzz_preset.c - presets, which the operator names: each method that has one reads the file. */
#include <stdio.h>

#include "fuzz_file.h"
#include "fuzz_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const method[] = { "d2o", "duo", "omnikv", "pod", "pyramidkv", "simlayerkv" };
enum { N_METHOD = sizeof method / sizeof *method };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = cb_fuzz_file(data, n);

    for (int i = 0; i < N_METHOD; i++) {
        const int32_t ids[] = { 3, 4, 5, 6, 7, 8, 9, 10 };
        char text[128];
        const struct cb_session_params p = { .n_ctx = 32, .chunk = 16, .policy = text };
        cb_session *s;
        snprintf(text, sizeof text, "%s:preset=%s", method[i], path);
        if (cb_session_open(cb_fuzz_model(), &p, &s))
            continue;
        if (!cb_session_prefill(s, ids, 8, NULL))
            (void)cb_session_decode(s, 3);
        cb_session_close(s);
    }
    return 0;
}
