/* SPDX-License-Identifier: MIT */
/* bank_index.h - what the files of a bank folder hold, so that a look-up opens each file once and
 * later ones only ask whether it is still the same file. Of the tokens there are hashes: a number
 * that the index gives is compared with the file's tokens before it counts. */
#ifndef BANK_INDEX_H
#define BANK_INDEX_H

#include <jansson.h>
#include <stdint.h>

struct bank_index;

/* A prompt that is looked for */
struct bank_prompt {
    uint64_t settings;     /* cb_bank_settings_hash() */
    const int32_t *tokens; /* [n] */
    int n, extends;        /* extends: 1: a part of a file can serve, and be continued */
    uint64_t *block;       /* [n / KV_PREPACK] of the tokens up to the end of each block */
};

/* Hash of what cb_saved_settings() gives -> *out. CB_ENOMEM */
int cb_bank_settings_hash(const json_t *settings, uint64_t *out);
int cb_bank_prompt_open(struct bank_prompt *p); /* makes block[]. CB_ENOMEM */
void cb_bank_prompt_close(struct bank_prompt *p);
/* How many of the prompt's tokens a timeline have[n_have] begins with, as far as it can serve them
 */
int cb_bank_prompt_serves(const struct bank_prompt *p, const int32_t *have, int n_have);

int cb_bank_index_new(struct bank_index **out);
void cb_bank_index_free(struct bank_index *x); /* NULL is allowed */
/* How many tokens the file `name` at `path` saves this prompt -> *n; 0: it has other settings or
 * tokens. CB_EFORMAT: the file is damaged; CB_EIO, CB_ENOMEM. Any thread may call it. */
int cb_bank_index_serves(struct bank_index *x, const char *path, const char *name,
                         const struct bank_prompt *p, int *n);

#endif
