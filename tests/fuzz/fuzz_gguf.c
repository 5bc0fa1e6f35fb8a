/* SPDX-License-Identifier: MIT */
/* fuzz_gguf.c - model files: their structure, tokenizer, shapes and tensors, and, of those that
 * open, a few tokens. */
#include <stdlib.h>

#include "ctxbank.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_CTX = 32 };

static void compute(cb_model *m)
{
    const struct cb_session_params p = { .n_ctx = N_CTX, .chunk = 16 };
    int32_t *ids;
    cb_session *s;
    int n;

    if (cb_session_open(m, &p, &s))
        return;
    if (!cb_tokenize(m, "a b", 3, CB_TOK_BOS | CB_TOK_SPECIAL, &ids, &n)) {
        if (n && !cb_session_prefill(s, ids, n, NULL))
            (void)cb_session_decode(s, ids[0]);
        free(ids);
    }
    cb_session_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct cb_model_params p = { .n_threads = 1 };
    cb_model *m;

    if (!cb_model_open(cb_fuzz_file(data, n), &p, &m)) {
        compute(m);
        cb_model_close(m);
    }
    return 0;
}
