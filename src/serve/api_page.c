/* SPDX-License-Identifier: MIT */
/* api_page.c - what a browser gets: the page at / and the description of all routes, files of this
 * folder that the build turns into texts. */
#include <string.h>

#include "api.h"
#include "src/serve/page_texts.h" /* made of page.html and openapi.json */

/* The page's scripts and styles bear a word that no other page can know, and that is new each time:
 * text that a model wrote can never become a script. */
void cb_api_page(struct exchange *x)
{
    static const char place[] = "NONCE";
    const char *at = page_text, *next;

    cb_random_id("", x->nonce, sizeof x->nonce);
    for (; (next = strstr(at, place)); at = next + strlen(place)) {
        cb_buf_add(&x->out, at, (size_t)(next - at));
        cb_buf_text(&x->out, x->nonce);
    }
    cb_buf_text(&x->out, at);
    x->status = 200;
    x->type = "text/html; charset=utf-8";
}

void cb_api_openapi(struct exchange *x)
{
    cb_buf_text(&x->out, openapi_text);
    x->status = 200;
    x->type = "application/json";
}
