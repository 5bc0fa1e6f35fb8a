/* SPDX-License-Identifier: MIT */
/* item.c - items and lists of them. */
#include "item.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/utf8.h"

static char *copy(const char *s)
{
    const size_t n = strlen(s) + 1;
    char *p = cb_calloc(n, 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

int cb_item_make(struct item *it, const char *id, const char *task, const char *context,
                 const char *question, const char *const *answer, int n_answer)
{
    int ok;

    *it =
        (struct item){ .id = copy(id), .task = copy(task), .context = copy(context), .depth = -1 };
    it->question = copy(question);
    it->answer = cb_calloc((size_t)n_answer, sizeof *it->answer);
    if (it->task) /* it is printed */
        it->task[cb_utf8_plain(it->task, strlen(it->task), "")] = '\0';
    ok = it->id && it->task && it->context && it->question && it->answer;
    for (int i = 0; ok && i < n_answer; i++, it->n_answer++)
        ok = (it->answer[i] = copy(answer[i])) != NULL;
    if (ok)
        return CB_OK;
    cb_item_free(it);
    return CB_ENOMEM;
}

void cb_item_free(struct item *it)
{
    for (int i = 0; i < it->n_answer; i++)
        free(it->answer[i]);
    for (int i = 0; i < it->n_class; i++)
        free(it->classes[i]);
    free(it->answer);
    free(it->classes);
    free(it->id);
    free(it->task);
    free(it->context);
    free(it->question);
    *it = (struct item){ 0 };
}

int cb_item_add(struct item_list *list, struct item *it)
{
    if (cb_grow_by_one(&list->at, list->n, sizeof *list->at)) {
        cb_item_free(it);
        return CB_ENOMEM;
    }
    list->at[list->n++] = *it;
    return CB_OK;
}

void cb_item_list_free(struct item_list *list)
{
    for (int i = 0; i < list->n; i++)
        cb_item_free(&list->at[i]);
    free(list->at);
    *list = (struct item_list){ 0 };
}
