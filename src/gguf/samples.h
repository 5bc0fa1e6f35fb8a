/* SPDX-License-Identifier: MIT */
/* samples.h - tells models apart without reading their files whole. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include "gguf.h"

/* A hash of each tensor's name, type and shape, and of bytes of its begin, middle and end */
uint64_t cb_gguf_samples(const struct gguf *g);

#endif
