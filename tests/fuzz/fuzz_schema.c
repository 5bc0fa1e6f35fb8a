/* SPDX-License-Identifier: MIT */
/* fuzz_schema.c - JSON schemas for a fuzzer. */
#include "fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cb_fuzz_grammar(GRAMMAR_JSON_SCHEMA, data, size);
}
