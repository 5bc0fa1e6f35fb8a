/* SPDX-License-Identifier: MIT */
/* api_page.c - what a browser gets: the page at / and the description of all routes, files of this
 * folder that the build turns into texts. */
#include <string.h>

#include "api.h"
#include "src/serve/page_texts.h" /* made of page.html, page_files.js and openapi.json */

/* Writes from[to - from] with the nonce in its places. */
static void put_page(struct exchange *x, const char *from, const char *to)
{
    static const char place[] = "NONCE";
    const char *next;

    for (; (next = strstr(from, place)) && next < to; from = next + strlen(place)) {
        cb_buf_add(&x->out, from, (size_t)(next - from));
        cb_buf_text(&x->out, x->nonce);
    }
    cb_buf_add(&x->out, from, (size_t)(to - from));
}

/* The page's scripts and styles bear a word that no other page can know, and that is new each time:
 * text that a model wrote can never become a script. */
void cb_api_page(struct exchange *x)
{
    static const char place[] = "/* PAGE_FILES */";
    const char *const files = strstr(page_text, place);
    struct id_source ids;
    const int rc = cb_ids_open(&ids);

    if (rc) {
        cb_exchange_fail(x, rc);
        return;
    }
    cb_next_id(&ids, "", x->nonce, sizeof x->nonce);
    put_page(x, page_text, files);
    cb_buf_text(&x->out, page_files_text);
    put_page(x, files + strlen(place), page_text + strlen(page_text));
    x->status = 200;
    x->type = "text/html; charset=utf-8";
}

void cb_api_openapi(struct exchange *x)
{
    cb_buf_text(&x->out, openapi_text);
    x->status = 200;
    x->type = "application/json";
}
