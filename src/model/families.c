/* SPDX-License-Identifier: MIT */
/* families.c - the model families. Adding one that differs only in these points is one row. */
#include <string.h>

#include "model.h"

static const struct arch table[] = {
    /* rows of q and k are ordered for RoPE on adjacent pairs */
    { .text = "Llama 1 to 3.2, Mistral, Yi, SmolLM",
      .name = "llama",
      .rope = ROPE_PAIR,
      .act = ACT_SILU,
      .qkv_bias = 0 },
    { .text = "Qwen 2 and 2.5",
      .name = "qwen2",
      .rope = ROPE_HALF,
      .act = ACT_SILU,
      .qkv_bias = 1 },
};

const struct arch *cb_arch_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i] : NULL;
}

const struct arch *cb_arch_find(struct gguf_str name)
{
    const struct arch *a;
    for (int i = 0; (a = cb_arch_at(i)); i++)
        if (strlen(a->name) == name.n && !memcmp(a->name, name.s, name.n))
            return a;
    return NULL;
}
