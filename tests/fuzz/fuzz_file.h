/* SPDX-License-Identifier: MIT */
/* fuzz_file.h - one input of a fuzzer as a file in memory, for readers that take a path. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Its path, which is valid until the next call */
const char *cb_fuzz_file(const uint8_t *data, size_t n);

#endif
