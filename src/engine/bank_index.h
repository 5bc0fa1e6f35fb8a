/* SPDX-License-Identifier: MIT */
/* bank_index.h - what the files of a bank folder hold, so that a look-up opens each file once and
 * later ones only ask whether it is still the same file. A number that the index gives is compared
 * with the file's own tokens before it counts. */
#ifndef BANK_INDEX_H
#define BANK_INDEX_H

#include <jansson.h>
#include <stdint.h>

struct bank_index;

/* A prompt that is looked for */
struct bank_prompt {
    uint64_t settings;     /* cb_bank_settings_hash() */
    const int32_t *tokens; /* [n] */
    int n;
    int grid; /* a part of a file serves where its tokens are a multiple of this; 0: no part does */
};

/* Hash of what cb_saved_settings() gives -> *out. CB_ENOMEM */
int cb_bank_settings_hash(const json_t *settings, uint64_t *out);
/* How many first tokens of the prompt a timeline have[n_have] can serve: at most those that both
 * begin with (see `grid`). logits 1: the timeline has the logits of its last token */
int cb_bank_prompt_serves(const struct bank_prompt *p, const int32_t *have, int n_have, int logits);

int cb_bank_index_new(struct bank_index **out);
void cb_bank_index_free(struct bank_index *x); /* NULL is allowed */
/* How many tokens the file `name` at `path` saves this prompt -> *n; 0: it has other settings or
 * tokens. CB_EFORMAT: the file is damaged; CB_EIO, CB_ENOMEM. Any thread may call it. */
int cb_bank_index_serves(struct bank_index *x, const char *path, const char *name,
                         const struct bank_prompt *p, int *n);

#endif
