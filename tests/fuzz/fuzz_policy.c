/* SPDX-License-Identifier: MIT */
/* fuzz_policy.c - the texts of a policy and, behind a line end, of a form of prefill, as a guest
 * sends them. What is accepted reads a prompt. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_CTX = 64, N_PROMPT = 48, N_STEP = 6 };

static void compute(cb_session *s)
{
    int32_t ids[N_PROMPT];

    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = 3 + i * 7 % 40;
    if (cb_session_prefill(s, ids, N_PROMPT, NULL))
        return;
    for (int i = 0; i < N_STEP; i++)
        if (cb_session_decode(s, ids[i]))
            return;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *policy = malloc(n + 1), *prefill;
    struct cb_session_params p = { .n_ctx = N_CTX, .chunk = 16, .guest = 1 };
    cb_session *s;

    if (!policy)
        return 0;
    memcpy(policy, data, n);
    policy[n] = '\0';
    prefill = strchr(policy, '\n');
    if (prefill)
        *prefill++ = '\0';
    p.policy = policy;
    p.prefill = prefill;
    if (!cb_session_open(cb_fuzz_model(), &p, &s)) {
        compute(s);
        cb_session_close(s);
    }
    free(policy);
    return 0;
}
