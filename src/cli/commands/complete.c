/* SPDX-License-Identifier: MIT */
/* complete.c - ctxbank complete: what may stand where the cursor is, for the completion of shells.
 *
 * The operands are the words of the command line after the program's name; the last one is the
 * word at the cursor, which may be empty. The first line of the answer is "words", or, where a file
 * is asked for, "files N SUFFIX" or "folders N": the path begins after the word's first N bytes.
 * Each line after it is a word and, after a tab, what it does. */
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "cli/cmd.h"
#include "device/device.h"
#include "eval/gen.h"
#include "eval/published.h"
#include "gguf/dtype.h"
#include "policy/policy.h"
#include "text/tok_pre.h"

enum { NOTE_WIDTH = 72 };

struct place {
    const char *const *word; /* [n], the last one is at the cursor */
    int n;
    const char *cur;
};

/* Prints the first n_head bytes of the cursor's word, and `word` and `end` after them, if the rest
 * of the cursor's word begins `word`. */
static void offer_behind(const struct place *p, size_t n_head, const char *word, const char *end,
                         const char *note)
{
    const char *typed = p->cur + n_head;
    int width = (int)strcspn(note, ";(");

    if (!cb_begins(word, typed))
        return;
    if (width > NOTE_WIDTH)
        for (width = NOTE_WIDTH; width > 1 && note[width] != ' ';)
            width--;
    while (width > 0 && note[width - 1] == ' ')
        width--;
    printf("%.*s%s%s%s%.*s\n", (int)n_head, p->cur, word, end, *note ? "\t" : "", width, note);
}

static void offer(const struct place *p, const char *word, const char *note)
{
    offer_behind(p, 0, word, "", note);
}

static void offer_words(const struct place *p, size_t n_head, const char *words)
{
    const char *w;
    char word[64];
    size_t n;

    while ((w = cb_word(&words, ' ', &n))) {
        snprintf(word, sizeof word, "%.*s", (int)n, w);
        offer_behind(p, n_head, word, "", "");
    }
}

/* ---- names of commands ---- */

/* Is this the first command of its group ("eval" of "eval perplexity")? */
static int opens_group(const struct cmd *const *cmds, int i)
{
    const size_t n = strcspn(cmds[i]->name, " ");

    for (int j = 0; j < i && cmds[i]->name[n]; j++)
        if (!strncmp(cmds[j]->name, cmds[i]->name, n + 1))
            return 0;
    return cmds[i]->name[n] != '\0';
}

static void offer_commands(const struct place *p)
{
    const struct cmd *const *cmds = cb_cmd_table();

    for (int i = 0; cmds[i]; i++) {
        char name[32];
        const int alone = !strchr(cmds[i]->name, ' ');
        if (cmds[i]->hidden || !(alone || opens_group(cmds, i)))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(cmds[i]->name, " "), cmds[i]->name);
        offer(p, name, alone ? cmds[i]->brief : "");
    }
}

/* The second words of a group's commands; returns how many commands it has. */
static int offer_members(const struct place *p, const char *group)
{
    const struct cmd *const *cmds = cb_cmd_table();
    const size_t n = strlen(group);
    int found = 0;

    for (int i = 0; cmds[i]; i++)
        if (!strncmp(cmds[i]->name, group, n) && cmds[i]->name[n] == ' ') {
            found++;
            if (p)
                offer(p, cmds[i]->name + n + 1, cmds[i]->brief);
        }
    return found;
}

/* The command of the first words; *used: how many. NULL: none, or the cursor is within its name. */
static const struct cmd *command(const struct place *p, int *used)
{
    const struct cmd *const *cmds = cb_cmd_table();

    for (int i = 0; cmds[i]; i++) {
        const size_t n = strcspn(cmds[i]->name, " ");
        const char *second = cmds[i]->name[n] ? cmds[i]->name + n + 1 : NULL;
        *used = second ? 2 : 1;
        if (p->n > *used && strlen(p->word[0]) == n && !strncmp(cmds[i]->name, p->word[0], n) &&
            (!second || !strcmp(second, p->word[1])))
            return cmds[i];
    }
    return NULL;
}

/* ---- values ---- */

struct methods {
    const struct method *(*at)(int i);
    int has_settings;
};

/* Keys, or the values of the key that was typed; n_head: where the key begins */
static void offer_keys(const struct place *p, const struct methods *of, const struct method *m,
                       size_t n_head)
{
    const char *key = p->cur + n_head;
    const size_t n = strcspn(key, "=");
    const struct paper_setting *x;

    if (!key[n] && of->has_settings)
        offer_behind(p, n_head, "as", "=", "the options of a paper");
    for (const struct method_opt *o = m->opts; o->name; o++) {
        if (!key[n])
            offer_behind(p, n_head, o->name, "=", o->text);
        else if (o->kind == OPT_CHOICE && cb_is_word(o->name, key, n))
            offer_words(p, n_head + n + 1, o->choices);
    }
    for (int i = 0; key[n] && n == 2 && !strncmp(key, "as", 2) && (x = cb_paper_setting_at(i)); i++)
        if (of->has_settings && !strcmp(x->method, m->name))
            offer_behind(p, n_head + 3, x->name, "", x->options);
}

/* NAME:key=value,key=value */
static void offer_method(const struct place *p, size_t n_head, const struct methods *of)
{
    const char *spec = p->cur + n_head, *last = strrchr(spec, ',');
    const size_t n = strcspn(spec, ":");
    const struct method *m;

    for (int i = 0; (m = of->at(i)); i++) {
        if (!spec[n])
            offer_behind(p, n_head, m->name, "", m->brief);
        else if (cb_is_word(m->name, spec, n))
            offer_keys(p, of, m, (size_t)((last ? last : spec + n) + 1 - p->cur));
    }
}

static void offer_types(const struct place *p, size_t n_head, const char *more)
{
    for (int i = 0; i < KV_TYPE_COUNT; i++)
        offer_behind(p, n_head, cb_kv_type[i].name, "", "");
    offer_words(p, n_head, more);
}

/* --tasks NAME,NAME */
static void offer_tasks(const struct place *p, const struct cmd *cmd, size_t n_head)
{
    const char *last = strrchr(p->cur + n_head, ',');
    struct templates *all;

    n_head = last ? (size_t)(last + 1 - p->cur) : n_head;
    if (cmd == &cb_cmd_eval_ruler) {
        for (int i = 0; cb_ruler_at(i); i++)
            offer_behind(p, n_head, cb_ruler_name(cb_ruler_at(i)), "", "");
    } else if (cmd == &cb_cmd_eval_longbench && !cb_templates_open(&all)) {
        for (int i = 0; cb_template_at(all, i); i++)
            offer_behind(p, n_head, cb_template_at(all, i)->name, "", "");
        cb_templates_close(all);
    }
}

static void offer_text(const struct place *p, const struct cmd *cmd, enum opt_id id, size_t n_head)
{
    static const struct methods policies = { cb_method_at, 1 };
    static const struct methods prefills = { cb_prompt_method_at, 0 };
    struct cb_device_info d;

    switch (id) {
    case ARG_POLICY:
        offer_behind(p, n_head, "auto", "", "chooses one by figures measured on the model");
        offer_method(p, n_head, &policies);
        break;
    case ARG_POLICIES:
        offer_method(p, n_head, &policies);
        break;
    case ARG_PREFILL:
        offer_method(p, n_head, &prefills);
        break;
    case ARG_TYPE_K:
        offer_types(p, n_head, "kivi4 kivi2 planes");
        break;
    case ARG_TYPE_V:
        offer_types(p, n_head, "kivi4 kivi2");
        break;
    case ARG_DEVICE:
        for (int i = 0; !cb_device_at(i, &d); i++)
            offer_behind(p, n_head, d.name, "", d.text);
        offer_behind(p, n_head, "auto", "", "the fastest for the model");
        break;
    case ARG_CHAT_TEMPLATE:
        for (int i = 0; cb_chat_form_at(i); i++)
            offer_behind(p, n_head, cb_chat_form_at(i), "", "");
        break;
    case ARG_PRE_TOKENIZER:
        for (int i = 0; cb_tok_pre_row(i); i++)
            offer_words(p, n_head, cb_tok_pre_row(i)->names);
        break;
    case ARG_TASKS:
        offer_tasks(p, cmd, n_head);
        break;
    default:
        break;
    }
}

/* The value of an option, after the first n_head bytes of the word */
static void value(const struct place *p, const struct cmd *cmd, enum opt_id id, size_t n_head)
{
    const struct opt_row *row = &cb_opt_table[id];

    if (row->takes == TAKES_FILE && !strcmp(row->unit, "FOLDER")) {
        printf("folders %zu\n", n_head);
    } else if (row->takes == TAKES_FILE || row->takes == TAKES_NEW_FILE ||
               row->takes == TAKES_SCALED) {
        printf("files %zu%s\n", n_head, strstr(row->unit, ".gguf") ? " .gguf" : "");
    } else {
        puts("words");
        if (row->choices)
            offer_words(p, n_head, row->choices);
        else
            offer_text(p, cmd, id, n_head);
    }
}

/* ---- options ---- */

/* Other spellings than the long name are offered only where one is being typed. */
static void offer_options(const struct place *p, const struct cmd *cmd)
{
    const int named = *p->cur && strcmp(p->cur, "--") != 0;

    for (int i = 0; i < ARG_COUNT; i++) {
        const struct opt_row *row = &cb_opt_table[i];
        char word[64];
        if (!(cmd->sets & row->sets))
            continue;
        snprintf(word, sizeof word, "--%s", row->name);
        offer(p, word, row->text);
        for (const char *a = named ? row->alias : NULL; a && *a; a += strspn(a, " ")) {
            const size_t n = strcspn(a, " ");
            snprintf(word, sizeof word, "%.*s", (int)n, a);
            offer(p, word, row->text);
            a += n;
        }
        snprintf(word, sizeof word, "-%c", row->letter);
        if (row->letter && named)
            offer(p, word, row->text);
    }
}

/* The option that takes the next word as its value, or -1 */
static int waits(const struct cmd *cmd, const char *word)
{
    const int id = *word == '-' && word[1] ? cb_opt_find(cmd, word, strlen(word)) : -1;

    return id >= 0 && cb_opt_table[id].takes != TAKES_NOTHING ? id : -1;
}

/* ---- operands ---- */

static void operand(const struct place *p, const struct cmd *cmd, int nth)
{
    if (cmd == &cb_cmd_quantize && nth == 2) {
        puts("words");
        for (int i = 0; i < DT_ENCODED; i++)
            offer(p, cb_dtype[i].name, "");
    } else if (cmd == &cb_cmd_quantize) {
        puts("files 0 .gguf");
    } else if (nth >= cmd->max_operands) {
        puts("words");
        offer_options(p, cmd);
    } else {
        puts(cmd == &cb_cmd_bank_list ? "folders 0" : "files 0");
    }
}

static void argument(const struct place *p, const struct cmd *cmd, int used)
{
    const size_t n = strcspn(p->cur, "=");
    int nth = 0, id = -1;

    for (int i = used; i < p->n - 1; i++) {
        nth += id < 0 && *p->word[i] != '-';
        id = id < 0 ? waits(cmd, p->word[i]) : -1;
    }
    if (id >= 0) {
        value(p, cmd, (enum opt_id)id, 0);
    } else if (*p->cur == '-' && p->cur[n] && (id = cb_opt_find(cmd, p->cur, n)) >= 0) {
        value(p, cmd, (enum opt_id)id, n + 1);
    } else if (*p->cur == '-') {
        puts("words");
        offer_options(p, cmd);
    } else {
        operand(p, cmd, nth);
    }
}

static int run(const struct opts *o)
{
    struct place p = { o->operand, o->n_operand, o->operand[o->n_operand - 1] };
    const int help = p.n > 1 && !strcmp(p.word[0], "help");
    const struct cmd *cmd;
    int used;

    if (help) {
        p.word++;
        p.n--;
    }
    cmd = command(&p, &used);
    if (cmd && !help) {
        argument(&p, cmd, used);
        return CB_OK;
    }
    puts("words");
    if (p.n == 2)
        offer_members(&p, p.word[0]);
    if (p.n > 1)
        return CB_OK;
    offer_commands(&p);
    if (!help) {
        offer(&p, "help", "list the options of a command");
        offer(&p, "--help", "list the commands");
        offer(&p, "--version", "show the version");
    }
    return CB_OK;
}

const struct cmd cb_cmd_complete = {
    .name = "complete",
    .operands = "-- WORD...",
    .min_operands = 1,
    .max_operands = 1 << 20,
    .brief = "list what may stand where the cursor is",
    .run = run,
    .hidden = 1,
};
