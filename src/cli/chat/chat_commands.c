/* SPDX-License-Identifier: MIT */
/* chat_commands.c - the commands of a conversation: /help and its like, and their completion. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/suggest.h"
#include "base/words.h"
#include "chat.h"
#include "cli/output/log.h"

enum word_takes { WORD_NOTHING, WORD_FILE, WORD_POLICY, WORD_ONE_OF };

struct word {
    const char *name, *operand; /* operand: "" = none */
    enum word_takes takes;
    const char *choices; /* WORD_ONE_OF */
    int needs;           /* 1: the operand must be there */
    const char *text;
    int (*obey)(struct chat *c, const char *operand);
};

static const struct word words[];

/* The path that was typed, with ~/ spelled out. CB_EARG if it is too long */
static int full_path(const char *typed, char *path, size_t size)
{
    const char *home = typed[0] == '~' && typed[1] == '/' ? getenv("HOME") : NULL;
    const int n =
        home ? snprintf(path, size, "%s%s", home, typed + 1) : snprintf(path, size, "%s", typed);

    return n < 0 || (size_t)n >= size ? cb_fail(CB_EARG, "%.40s...: too long a path", typed)
                                      : CB_OK;
}

/* ---- what they do ---- */

static int obey_file(struct chat *c, const char *operand)
{
    char path[PATH_MAX];

    TRY(full_path(operand, path, sizeof path));
    TRY(cb_chat_add_file(c, path));
    cb_log_note("%s comes in front of the next message", path);
    return CB_OK;
}

static int obey_save(struct chat *c, const char *operand)
{
    char path[PATH_MAX];

    TRY(full_path(operand, path, sizeof path));
    return cb_chat_save(c, path);
}

static int obey_load(struct chat *c, const char *operand)
{
    char path[PATH_MAX];

    TRY(full_path(operand, path, sizeof path));
    return cb_chat_load(c, path);
}

/* "NAME:key=value,... 32K": the context after the blank */
static int obey_policy(struct chat *c, const char *operand)
{
    const size_t n = strcspn(operand, " ");
    const char *ctx = operand + n + strspn(operand + n, " ");
    char name[400];
    int n_ctx = 0;

    if (!*operand) {
        cb_log_note("policy %s, context %d; 'ctxbank info --policies' lists the policies",
                    c->policy.s, c->e.n_ctx);
        return CB_OK;
    }
    if (n >= sizeof name)
        return cb_fail(CB_EARG, "/policy: too long");
    memcpy(name, operand, n);
    name[n] = '\0';
    if (*ctx) {
        char *end;
        const long k = strtol(ctx, &end, 10);
        const int shift = *end == 'K' || *end == 'k' ? 10 : *end == 'M' || *end == 'm' ? 20 : 0;
        if (end == ctx || end[shift > 0] || k < 1 || k > (1 << 30) >> shift)
            return cb_fail(CB_EARG, "/policy: '%s' is no context size", ctx);
        n_ctx = (int)(k << shift);
    }
    TRY(cb_chat_policy(c, name, n_ctx));
    cb_log_note("policy %s, context %d: the conversation is read again with the next message",
                c->policy.s, c->e.n_ctx);
    return CB_OK;
}

static int obey_stats(struct chat *c, const char *operand)
{
    if (!strcmp(operand, "on") || !strcmp(operand, "off"))
        c->show_stats = operand[1] == 'n';
    else if (*operand)
        return cb_fail(CB_EARG, "/stats: '%s' is not on or off", operand);
    else
        cb_chat_stats(c);
    return CB_OK;
}

static int obey_undo(struct chat *c, const char *operand)
{
    (void)operand;
    return cb_chat_undo(c);
}

static int obey_again(struct chat *c, const char *operand)
{
    (void)operand;
    return cb_chat_again(c);
}

static int obey_clear(struct chat *c, const char *operand)
{
    if (*operand && strcmp(operand, "all"))
        return cb_fail(CB_EARG, "/clear: '%s' is not all", operand);
    if (*operand)
        cb_buf_clear(&c->first_docs);
    return cb_chat_begin(c);
}

static int obey_exit(struct chat *c, const char *operand)
{
    (void)operand;
    c->done = 1;
    return CB_OK;
}

static int obey_help(struct chat *c, const char *operand)
{
    char head[64];

    (void)c;
    (void)operand;
    for (const struct word *w = words; w->name; w++) {
        snprintf(head, sizeof head, "/%s %s", w->name, w->operand);
        fprintf(stderr, "%-26s %s\n", head, w->text);
    }
    fputs("\nA line that ends in \\ continues in the next one; \"\"\" alone on a line begins and "
          "ends "
          "a text\nof many lines; so does a paste. A blank in front of / sends the line as it is.\n"
          "Ctrl-C stops an answer, or what is being read, and clears a line that was begun.\n",
          stderr);
    return CB_OK;
}

static const struct word words[] = {
    { "file", "FILE", WORD_FILE, NULL, 1,
      "put the text of FILE in front of the next message, and read it at once", obey_file },
    { "policy", "[NAME [TOKENS]]", WORD_POLICY, NULL, 0,
      "show or change which tokens the cache keeps, and the context size", obey_policy },
    { "stats", "[on|off]", WORD_ONE_OF, "on off", 0,
      "show speed, bank and what a token reads; on: after each answer", obey_stats },
    { "undo", "", WORD_NOTHING, NULL, 0, "take the last message and its answer back", obey_undo },
    { "again", "", WORD_NOTHING, NULL, 0,
      "ask for another answer, or continue a message that was stopped", obey_again },
    { "save", "FILE", WORD_FILE, NULL, 1, "save the conversation in FILE and FILE.chat",
      obey_save },
    { "load", "FILE", WORD_FILE, NULL, 1, "continue a saved conversation, or after a saved bank",
      obey_load },
    { "clear", "[all]", WORD_ONE_OF, "all", 0,
      "begin again, with the documents of -f; all: without them", obey_clear },
    { "help", "", WORD_NOTHING, NULL, 0, "show this list", obey_help },
    { "exit", "", WORD_NOTHING, NULL, 0, "leave, as Ctrl-D does", obey_exit },
    { "quit", "", WORD_NOTHING, NULL, 0, "the same", obey_exit },
    { .name = NULL },
};

/* ---- reading them ---- */

static const char *word_name(const void *ctx, int i)
{
    (void)ctx;
    return words[i].name;
}

static int unknown(const char *name, size_t n)
{
    const char *near = cb_name_nearest(name, n, word_name, NULL);
    char list[160];

    if (near)
        return cb_fail(CB_EARG, "/%.*s: no such command; did you mean /%s?", (int)n, name, near);
    cb_name_list(list, sizeof list, word_name, NULL);
    return cb_fail(CB_EARG, "/%.*s: no such command; there are %s", (int)n, name, list);
}

static int obey(struct chat *c, const char *name, size_t n, const char *operand)
{
    const int i = cb_name_find(name, n, word_name, NULL);

    if (i < 0)
        return unknown(name, n);
    if (words[i].needs && !*operand)
        return cb_fail(CB_EARG, "/%s: needs %s", words[i].name, words[i].operand);
    if (words[i].takes == WORD_NOTHING && *operand)
        return cb_fail(CB_EARG, "/%s: takes no argument", words[i].name);
    return words[i].obey(c, operand);
}

int cb_words_obey(struct chat *c, const char *text, int *rc)
{
    const size_t n = strspn(text + (*text == '/'), "abcdefghijklmnopqrstuvwxyz");
    const char *end = text + 1 + n;
    char *operand;
    size_t len;

    if (*text != '/' || (*end && *end != ' ' && *end != '\t') || strchr(text, '\n'))
        return 0; /* a path, or a text of several lines */
    operand = strdup(end + strspn(end, " \t"));
    if (!operand) {
        *rc = cb_fail(CB_ENOMEM, "out of memory");
        return 1;
    }
    for (len = strlen(operand); len && strchr(" \t", operand[len - 1]);)
        operand[--len] = '\0';
    *rc = obey(c, text + 1, n, operand);
    free(operand);
    return 1;
}

/* ---- completion ---- */

static void offer(struct buf *list, const char *name, const char *head, const char *end)
{
    if (cb_begins(name, head))
        cb_buf_print(list, "%s%s\n", name, end);
}

static void offer_words(const char *choices, const char *head, struct buf *list)
{
    char word[64];
    const char *c;
    size_t n;

    while ((c = cb_word(&choices, ' ', &n))) {
        snprintf(word, sizeof word, "%.*s", (int)n, c);
        offer(list, word, head, "");
    }
}

static void offer_policies(const char *head, struct buf *list)
{
    struct cb_method_info m;

    for (int i = 0; !cb_policy_at(i, &m); i++)
        offer(list, m.name, head, "");
}

static int is_folder(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);

    return n > 0 && (size_t)n < sizeof path && !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Files whose path begins as typed; *from moves after the last slash. */
static void offer_files(const char *typed, size_t *from, struct buf *list)
{
    const char *slash = strrchr(typed, '/'), *name = slash ? slash + 1 : typed;
    char folder[PATH_MAX], start[PATH_MAX];
    struct dirent *d;
    DIR *dir;

    snprintf(start, sizeof start, "%.*s", slash ? (int)(name - typed) : 1, slash ? typed : ".");
    *from += (size_t)(name - typed);
    if (full_path(start, folder, sizeof folder) || !(dir = opendir(folder)))
        return;
    while ((d = readdir(dir)))
        if (*d->d_name != '.' || *name == '.')
            offer(list, d->d_name, name, is_folder(folder, d->d_name) ? "/" : "");
    closedir(dir);
}

int cb_words_complete(void *arg, const char *head, size_t *from, struct buf *list)
{
    const size_t n = *head == '/' ? strcspn(head + 1, " ") : 0;
    const char *operand = head + 1 + n;
    int i;

    (void)arg;
    if (*head != '/')
        return CB_OK;
    if (!*operand) {
        *from = 1;
        for (const struct word *w = words; w->name; w++)
            offer(list, w->name, head + 1, "");
        return cb_buf_put(list, "", 0);
    }
    i = cb_name_find(head + 1, n, word_name, NULL);
    operand += strspn(operand, " ");
    *from = (size_t)(operand - head);
    if (i >= 0 && words[i].takes == WORD_FILE)
        offer_files(operand, from, list);
    else if (i >= 0 && words[i].takes == WORD_POLICY)
        offer_policies(operand, list);
    else if (i >= 0)
        offer_words(words[i].choices, operand, list);
    return cb_buf_put(list, "", 0);
}
