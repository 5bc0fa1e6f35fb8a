/* SPDX-License-Identifier: MIT */
/* fuzz_grammar.h - one input of a fuzzer as a grammar. */
#ifndef FUZZ_GRAMMAR_H
#define FUZZ_GRAMMAR_H

#include "grammar/grammar.h"

/* Reads data[size] within small limits. A grammar that is read is followed to an end, a limit or a
 * dead end; aborts on a dead end, and where a text of a schema is no JSON. */
int cb_fuzz_grammar(enum grammar_kind kind, const uint8_t *data, size_t size);

#endif
