/* SPDX-License-Identifier: MIT */
/* paper_settings.c - policies as papers set them, the method of each paper beside those that it
 * compares with, by name: "pyrkv-128" is PyramidKV at a size of 128, "h2o:as=pyrkv-128" H2O as run
 * there. */
#include <string.h>

#include "base/words.h"
#include "policy.h"

/* PyramidKV (Cai et al. 2024, section 5 and the published code), at one size */
#define PYRAMID(n)                                                                                 \
    { "pyrkv-" #n, "pyramidkv",                                                                    \
      "budget=" #n ",window=8,beta=20,kernel=7,pool=max,budgets=compat" },                         \
        { "pyrkv-" #n, "snapkv", "budget=" #n ",window=8,kernel=7,pool=max" },                     \
        { "pyrkv-" #n, "h2o", "budget=" #n ",recent=8,decode=grow" },                              \
    {                                                                                              \
        "pyrkv-" #n, "streamingllm", "budget=" #n ",sink=4,positions=kept,decode=grow"             \
    }

/* The paper's own method comes first. */
/* clang-format off: a row a line */
static const struct paper_setting table[] = {
    /* PoD (Ma et al. 2024, section 3.1 and appendix A.2): windows of 4096 tokens for all; a flash
     * attention window of 4096 shows the current token besides */
    { "pod-4k", "pod", "sinks=16,recent=4080" },
    { "pod-4k", "window", "budget=4097,prefill=banded" },
    { "pod-4k", "streamingllm", "sink=16,recent=4080,prefill=windowed" },
    { "pod-4k", "lm-infinite", "sink=16,window=4080" },
    { "pod-4k", "h2o", "budget=4096,recent=4000" },
    { "pod-4k", "quest", "budget=4096,page=16" },
    { "pod-4k", "snapkv", "budget=4096,window=64,kernel=5,pool=mean" },
    { "pod-4k", "pyramidkv", "budget=2048,window=8,beta=20,kernel=7,pool=max,budgets=compat" },
    /* SimLayerKV (Zhang et al. 2024, section 6.1): lazy layers are cut once */
    { "slkv-1k", "simlayerkv", "sink=4,recent=1024,least=1,decode=grow" },
    { "slkv-1k", "streamingllm", "sink=4,recent=1024" },
    { "slkv-1k", "snapkv", "budget=768" },
    { "slkv-1k", "minicache", "start=0.5,t=0.6,retain=1024" },
    /* D2O (Wan et al. 2024, sections 4.1 and 5.1): a fifth of the prompt */
    { "d2o-20", "d2o", "budget=0.2,recent=0.25,sink=4,layers=paper" },
    { "d2o-20", "window", "budget=0.2,prefill=dense" },
    { "d2o-20", "streamingllm", "budget=0.2,sink=4,positions=kept" },
    { "d2o-20", "h2o", "budget=0.2,recent=0.5" },
    { "d2o-20", "roco", "budget=0.2" },
    PYRAMID(64),
    PYRAMID(96),
    PYRAMID(128),
    PYRAMID(256),
    PYRAMID(2048),
    /* Ada-KV (Feng et al. 2024) around SnapKV and PyramidKV; each head has a fifth for itself, as
     * advised where query heads share keys */
    { "adakv", "snapkv", "budget=1024,window=32,kernel=7,pool=max,floor=0.2" },
    { "adakv", "pyramidkv", "budget=1024,window=32,kernel=7,pool=max,floor=0.2" },
    /* OmniKV (Hao et al. 2025, section 5.1): 30 % of the cache */
    { "omni-30", "omnikv", "filter=paper,wait=1,mem=30" },
    { "omni-30", "h2o", "budget=0.3,recent=0.5,group=max,drop=first-decode" },
    { "omni-30", "streamingllm", "budget=0.3,sink=0.01,positions=kept,decode=grow" },
    { "omni-30", "infllm", "local=1024,sink=128,block=32,blocks=16,reps=4,chunk=512" },
};
/* clang-format on */

const struct paper_setting *cb_paper_setting_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i] : NULL;
}

const struct paper_setting *cb_paper_setting_find(const char *name, size_t n, const char *method)
{
    const struct paper_setting *x;

    for (int i = 0; (x = cb_paper_setting_at(i)); i++)
        if (cb_is_word(x->name, name, n) && (!method || !strcmp(x->method, method)))
            return x;
    return NULL;
}
