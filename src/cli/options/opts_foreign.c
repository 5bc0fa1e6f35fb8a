/* SPDX-License-Identifier: MIT */
/* opts_foreign.c - options of llama.cpp that this program, or one of its commands, does not have:
 * those that change nothing here are accepted, the others are refused with what to use instead. */
#include "opts_foreign.h"
#include "base/words.h"

#include <string.h>

enum value {
    NO_VALUE,
    VALUE,
    MAYBE /* on, off, auto, 0, 1 */,
    ONLY_0 /* other values are refused */
};

struct foreign {
    const char *names; /* blank-separated */
    enum value value;
    const char *instead; /* NULL: accepted */
};

static const struct foreign table[] = {
    { "-ngl --gpu-layers --n-gpu-layers", ONLY_0,
      "--device chooses where a model runs; 'ctxbank info --backends' lists the devices" },
    { "-fa --flash-attn", MAYBE, NULL },
    { "--warmup --no-warmup --mmap --no-mmap -no-cnv --no-conversation --no-display-prompt "
      "--jinja --no-escape --no-context-shift --simple-io --perf --no-perf --no-op-offload "
      "-nkvo --no-kv-offload",
      NO_VALUE, NULL },
    { "-b --batch-size -dt --defrag-thold -lv --verbosity --prio --poll", VALUE, NULL },
    { "-cnv --conversation -i --interactive -if --interactive-first", NO_VALUE,
      "'ctxbank chat' talks turn by turn" },
    { "-st --single-turn", NO_VALUE, "'ctxbank run --chat' answers once" },
    { "-hf -hfr --hf-repo -hff --hf-file -mu --model-url", VALUE,
      "nothing is downloaded: fetch the GGUF file with a browser or curl, then give it with -m" },
    { "-np --parallel", VALUE, "'ctxbank serve' answers several at a time" },
    { "--prompt-cache", VALUE, "'ctxbank bank save' writes a context, --bank opens it" },
    { "--prompt-cache-all --prompt-cache-ro", NO_VALUE, "--bank opens a saved context" },
    { "--context-shift", NO_VALUE, "--policy streamingllm continues beyond the context" },
    { "--dry-run", NO_VALUE, "'ctxbank info -m MODEL -c TOKENS' plans the memory of a context" },
    { "--keep", VALUE, "--policy streamingllm:sink=N keeps the first N tokens" },
    { "-sm --split-mode -ts --tensor-split -mg --main-gpu", VALUE, "--device names one device" },
};

static const struct foreign *foreign_of(const char *typed, size_t n)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (cb_word_index(table[i].names, ' ', typed, n) >= 0)
            return &table[i];
    return NULL;
}

/* Does `next` belong to the option? */
static int takes(const struct foreign *f, const char *next)
{
    return next &&
           (f->value == VALUE || f->value == ONLY_0 ||
            (f->value == MAYBE && cb_word_index("on off auto 0 1", ' ', next, strlen(next)) >= 0));
}

int cb_opts_foreign(const char *typed, size_t n, const char *next, int *used, const char **instead)
{
    const struct foreign *f = foreign_of(typed, n);
    const char *value = typed[n] ? typed + n + 1 : next;

    *used = 0;
    *instead = NULL;
    if (!f)
        return 0;
    if (!(f->value == ONLY_0 && value && !strcmp(value, "0")))
        *instead = f->instead;
    *used = !typed[n] && takes(f, next);
    return 1;
}
