/* SPDX-License-Identifier: MIT */
/* fuzz_jinja.c - chat templates for a fuzzer: a template, and behind a NUL byte its variables. */
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/json_read.h"

static const struct jinja_limits limits = {
    .memory_bytes = 4 << 20, .output_bytes = 1 << 16, .steps = 20000, .depth = 100
};

static const char conversation[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
    "\"a\\n1\"}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"tools\":[{\"name\":\"f\"}]"
    "}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - data) : size;
    /* exactly as long as it is, so that a byte past it is seen */
    char *source = malloc(n + !n), *given = malloc(size - n + 1);
    const struct node *t;
    struct jstr out;
    struct jrun r;
    struct jv vars;
    int rc = source && given ? 0 : -1;

    if (!rc) {
        memcpy(source, data, n);
        memcpy(given, end ? end + 1 : data, end ? size - n - 1 : 0);
        cb_jrun_open(&r, &limits);
        rc = cb_jinja_parse(&r, source, n, &t);
        if (!rc && end)
            rc = cb_jread(&r, given, size - n - 1, &vars);
        else if (!rc)
            rc = cb_jread(&r, conversation, sizeof conversation - 1, &vars);
        if (!rc && vars.kind == J_DICT)
            cb_jinja_render(&r, t, &vars, &out);
        if (r.used > limits.memory_bytes)
            abort();
        cb_jrun_close(&r);
    }
    free(source);
    free(given);
    return 0;
}
