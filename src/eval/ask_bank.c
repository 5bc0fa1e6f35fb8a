/* SPDX-License-Identifier: MIT */
/* ask_bank.c - where a policy's state depends on how the prompt was fed, only the prompt itself
 * will do; else its beginning. */
#include "ask_bank.h"

#include <string.h>

#include "base/ints.h"
#include "engine/session.h"

int cb_ask_bank_is_of(const cb_session *bank, const struct answerer *by)
{
    const struct cb_session_params *p = &bank->params;

    return !strcmp(p->policy, by->policy) && !strcmp(p->type_k, by->type_k) &&
           !strcmp(p->type_v, by->type_v) && !strcmp(p->prefill, by->prefill);
}

int cb_ask_bank_common(const cb_session *bank, const int32_t *ids, int n)
{
    const int len = cb_session_len(bank), most = min_int(len, n);
    const int32_t *held = cb_session_tokens(bank);
    int same = 0;

    while (same < most && held[same] == ids[same])
        same++;
    if (same < len) /* the last token is fed, for its logits */
        same = min_int(same, n - 1);
    if (!same || !cb_session_prefill_is_exact(bank, same))
        return 0;
    return same == n || cb_session_extends(bank) ? same : 0;
}
