/* SPDX-License-Identifier: MIT */
/* words.h - lists of words in one text, and texts that begin with another one. */
#ifndef WORDS_H
#define WORDS_H

#include <string.h>

/* The next word of *list, which has `by` between words -> its beginning, and *n, its length; NULL
 * at the end. *list, which may be NULL, moves past it. */
static inline const char *cb_word(const char **list, char by, size_t *n)
{
    const char *word = *list;

    if (!word || !*word)
        return NULL;
    while (**list && **list != by)
        ++*list;
    *n = (size_t)(*list - word);
    *list += **list == by;
    return word;
}

/* Is the text the word s[n]? */
static inline int cb_is_word(const char *text, const char *s, size_t n)
{
    return strlen(text) == n && !memcmp(text, s, n);
}

/* Which word of the list s[n] is, from 0; -1: none */
static inline int cb_word_index(const char *list, char by, const char *s, size_t n)
{
    const char *word;
    size_t len;

    for (int i = 0; (word = cb_word(&list, by, &len)); i++)
        if (len == n && !memcmp(word, s, n))
            return i;
    return -1;
}

static inline int cb_begins(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

#endif
