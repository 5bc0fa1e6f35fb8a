/* SPDX-License-Identifier: MIT */
/* token_bias.h - the logit_bias of a request. */
#ifndef TOKEN_BIAS_H
#define TOKEN_BIAS_H

#include <ctxbank.h>

#include "base/json.h"
#include "job.h"

/* {"id or text": bias} or [[id or text, bias], ...] -> list[n], which the caller frees, also after
 * a failure. A text biases each of its tokens; -100 and false ban a token. CB_EARG: no such token,
 * or no number */
int cb_token_bias_read(const cb_model *m, const json_t *request, struct logit_bias **list, int *n);

#endif
