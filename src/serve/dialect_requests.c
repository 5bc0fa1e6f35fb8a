/* SPDX-License-Identifier: MIT */
/* dialect_requests.c - the fields that all interfaces have beside OpenAI's and Anthropic's own. */
#include "dialect_requests.h"

#include "base/err.h"
#include "fields.h"

int cb_chat_fields(const json_t *request, json_t *chat)
{
    static const char *const names[] = { "chat_template_kwargs",  "bank",
                                         "fit_template",          "continue_final_message",
                                         "add_generation_prompt", "parallel_tool_calls",
                                         "reasoning_effort" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(request, names[i]);
        if (v && !json_is_null(v) && json_object_set(chat, names[i], v))
            return cb_fail(CB_ENOMEM, "out of memory");
    }
    return CB_OK;
}
