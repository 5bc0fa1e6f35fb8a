/* SPDX-License-Identifier: MIT */
/* opts_complete.c - completion for bash, zsh and fish, made from the option table. */
#include <string.h>

#include "opts.h"

static int taken(const struct cmd *cmd, const struct opt_row *row)
{
    return (cmd->sets & row->sets) != 0;
}

/* Every spelling of an option: -c, --ctx-size, aliases. */
static void spellings(const struct opt_row *row, const char *sep, FILE *f)
{
    if (row->letter)
        fprintf(f, "-%c%s", row->letter, sep);
    fprintf(f, "--%s", row->name);
    for (const char *a = row->alias; a && *a; a += strspn(a, " ")) {
        const int n = (int)strcspn(a, " ");
        fprintf(f, "%s%.*s", sep, n, a);
        a += n;
    }
}

/* Is this the first command of its group ("eval" of "eval perplexity")? */
static int opens_group(const struct cmd *const *cmds, int i)
{
    const size_t n = strcspn(cmds[i]->name, " ");

    if (!cmds[i]->name[n])
        return 0;
    for (int j = 0; j < i; j++)
        if (!strncmp(cmds[j]->name, cmds[i]->name, n + 1))
            return 0;
    return 1;
}

/* First words of all commands, or the second words of a group's. */
static void words(const struct cmd *const *cmds, const char *group, size_t n_group, FILE *f)
{
    const char *sep = "";

    for (int i = 0; cmds[i]; i++) {
        const char *name = cmds[i]->name;
        const size_t n = strcspn(name, " ");
        if (cmds[i]->hidden)
            continue;
        if (group && n == n_group && name[n] && !strncmp(name, group, n))
            fprintf(f, "%s%s", sep, name + n + 1);
        else if (!group && (!name[n] || opens_group(cmds, i)))
            fprintf(f, "%s%.*s", sep, (int)n, name);
        else
            continue;
        sep = " ";
    }
}

/* ---- bash ---- */

static void bash_groups(const struct cmd *const *cmds, FILE *f)
{
    for (int i = 0; cmds[i]; i++) {
        const size_t n = strcspn(cmds[i]->name, " ");
        if (!opens_group(cmds, i) || cmds[i]->hidden)
            continue;
        fprintf(f,
                "    %.*s)\n        if ((COMP_CWORD == 2)); then\n"
                "            COMPREPLY=($(compgen -W '",
                (int)n, cmds[i]->name);
        words(cmds, cmds[i]->name, n, f);
        fputs(
            "' -- \"$cur\"))\n            return\n        fi\n        cmd+=\" ${COMP_WORDS[2]}\"\n"
            "        ;;\n",
            f);
    }
}

static void bash_values(const struct cmd *cmd, FILE *f)
{
    fprintf(f, "    '%s')\n        case $prev in\n", cmd->name);
    for (int i = 0; i < ARG_COUNT; i++) {
        const struct opt_row *row = &cb_opt_table[i];
        if (!taken(cmd, row) || row->takes == TAKES_NOTHING)
            continue;
        fputs("        ", f);
        spellings(row, " | ", f);
        if (row->choices)
            fprintf(f, ") COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", row->choices);
        else if (row->takes == TAKES_FILE)
            fputs(") compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", f);
        else
            fputs(") return ;;\n", f);
    }
    fputs("        esac\n        opts='", f);
    for (int i = 0, first = 1; i < ARG_COUNT; i++) {
        if (!taken(cmd, &cb_opt_table[i]))
            continue;
        fputs(first ? "" : " ", f);
        first = 0;
        spellings(&cb_opt_table[i], " ", f);
    }
    fputs("'\n        ;;\n", f);
}

static void bash(const struct cmd *const *cmds, FILE *f)
{
    fputs("# SPDX-License-Identifier: MIT\n"
          "# bash completion for ctxbank; made by 'ctxbank dump completion bash'\n"
          "_ctxbank()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local cmd=${COMP_WORDS[1]} opts=\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '",
          f);
    words(cmds, NULL, 0, f);
    fputs(" --help --version' -- \"$cur\"))\n        return\n    fi\n    case $cmd in\n", f);
    bash_groups(cmds, f);
    fputs("    esac\n    case $cmd in\n", f);
    for (int i = 0; cmds[i]; i++)
        if (!cmds[i]->hidden)
            bash_values(cmds[i], f);
    fputs("    esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$opts\" -- \"$cur\"))\n"
          "    else\n        compopt -o filenames\n        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
          "    fi\n}\ncomplete -F _ctxbank ctxbank\n",
          f);
}

/* ---- zsh ---- */

/* Writes text inside '...[...]', where brackets and colons must be escaped. */
static void zsh_text(const char *text, FILE *f)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            fprintf(f, "\\%c", *text);
        else if (*text == '\'')
            fputs("'\\''", f);
        else
            fputc(*text, f);
    }
}

static void zsh_option(const struct opt_row *row, const char *spelling, int n, FILE *f)
{
    fprintf(f, "                '%s%.*s%s[", row->many ? "*" : "", n, spelling,
            row->takes == TAKES_NOTHING ? ""
            : spelling[1] == '-'        ? "="
                                        : "+");
    zsh_text(row->text, f);
    fputc(']', f);
    if (row->takes != TAKES_NOTHING) {
        fputc(':', f);
        zsh_text(row->unit, f);
        fputc(':', f);
        if (row->choices)
            fprintf(f, "(%s)", row->choices);
        else if (row->takes == TAKES_FILE)
            fputs("_files", f);
    }
    fputs("' \\\n", f);
}

static void zsh_command(const struct cmd *cmd, FILE *f)
{
    char spelling[64];

    fprintf(f, "        '%s')\n            _arguments -s \\\n", cmd->name);
    for (int i = 0; i < ARG_COUNT; i++) {
        const struct opt_row *row = &cb_opt_table[i];
        if (!taken(cmd, row))
            continue;
        if (row->letter) {
            snprintf(spelling, sizeof spelling, "-%c", row->letter);
            zsh_option(row, spelling, 2, f);
        }
        zsh_option(row, spelling, snprintf(spelling, sizeof spelling, "--%s", row->name), f);
        for (const char *a = row->alias; a && *a; a += strspn(a, " ")) {
            const int n = (int)strcspn(a, " ");
            zsh_option(row, a, n, f);
            a += n;
        }
    }
    fputs("                '*:file:_files'\n            ;;\n", f);
}

static void zsh(const struct cmd *const *cmds, FILE *f)
{
    fputs("#compdef ctxbank\n# SPDX-License-Identifier: MIT\n"
          "# zsh completion for ctxbank; made by 'ctxbank dump completion zsh'\n"
          "_ctxbank() {\n    local cmd=$words[2] n=1\n"
          "    if (( CURRENT == 2 )); then\n        compadd -- ",
          f);
    words(cmds, NULL, 0, f);
    fputs(" --help --version\n        return\n    fi\n    case $cmd in\n", f);
    for (int i = 0; cmds[i]; i++) {
        const size_t n = strcspn(cmds[i]->name, " ");
        if (!opens_group(cmds, i) || cmds[i]->hidden)
            continue;
        fprintf(
            f,
            "        %.*s)\n            if (( CURRENT == 3 )); then\n                compadd -- ",
            (int)n, cmds[i]->name);
        words(cmds, cmds[i]->name, n, f);
        fputs("\n                return\n            fi\n            cmd+=\" $words[3]\"\n"
              "            n=2\n            ;;\n",
              f);
    }
    fputs("    esac\n    shift n words\n    (( CURRENT -= n ))\n    case $cmd in\n", f);
    for (int i = 0; cmds[i]; i++)
        if (!cmds[i]->hidden)
            zsh_command(cmds[i], f);
    fputs("    esac\n}\n_ctxbank \"$@\"\n", f);
}

/* ---- fish ---- */

static void fish_quoted(const char *text, FILE *f)
{
    fputc('\'', f);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', f);
        fputc(*text, f);
    }
    fputc('\'', f);
}

/* The condition under which a command's options are offered. */
static void fish_when(const struct cmd *cmd, FILE *f)
{
    const int n = (int)strcspn(cmd->name, " ");

    fprintf(f, "complete -c ctxbank -n '__fish_seen_subcommand_from %.*s", n, cmd->name);
    if (cmd->name[n])
        fprintf(f, "; and __fish_seen_subcommand_from %s", cmd->name + n + 1);
    fputc('\'', f);
}

static void fish_option(const struct cmd *cmd, const struct opt_row *row, FILE *f)
{
    fish_when(cmd, f);
    if (row->letter)
        fprintf(f, " -s %c", row->letter);
    fprintf(f, " -l %s", row->name);
    for (const char *a = row->alias; a && *a; a += strspn(a, " ")) {
        const int n = (int)strcspn(a, " ");
        const int skip = a[1] == '-' ? 2 : 1;
        fprintf(f, " -%c %.*s", skip == 2 ? 'l' : 'o', n - skip, a + skip);
        a += n;
    }
    if (row->choices)
        fprintf(f, " -x -a '%s'", row->choices);
    else if (row->takes == TAKES_FILE)
        fputs(" -r -F", f);
    else if (row->takes != TAKES_NOTHING)
        fputs(" -x", f);
    fputs(" -d ", f);
    fish_quoted(row->text, f);
    fputc('\n', f);
}

static void fish(const struct cmd *const *cmds, FILE *f)
{
    fputs("# SPDX-License-Identifier: MIT\n"
          "# fish completion for ctxbank; made by 'ctxbank dump completion fish'\n"
          "complete -c ctxbank -n __fish_use_subcommand -l help -d 'show help'\n"
          "complete -c ctxbank -n __fish_use_subcommand -l version -d 'show the version'\n",
          f);
    for (int i = 0; cmds[i]; i++) {
        const int n = (int)strcspn(cmds[i]->name, " ");
        if (cmds[i]->hidden)
            continue;
        if (opens_group(cmds, i)) {
            fprintf(f, "complete -c ctxbank -f -n __fish_use_subcommand -a %.*s\n", n,
                    cmds[i]->name);
            fprintf(f,
                    "complete -c ctxbank -f -n '__fish_seen_subcommand_from %.*s; and not "
                    "__fish_seen_subcommand_from ",
                    n, cmds[i]->name);
            words(cmds, cmds[i]->name, (size_t)n, f);
            fputs("' -a '", f);
            words(cmds, cmds[i]->name, (size_t)n, f);
            fputs("'\n", f);
        } else if (!cmds[i]->name[n]) {
            fprintf(f, "complete -c ctxbank -f -n __fish_use_subcommand -a %s -d ", cmds[i]->name);
            fish_quoted(cmds[i]->brief, f);
            fputc('\n', f);
        }
    }
    for (int i = 0; cmds[i]; i++)
        for (int j = 0; j < ARG_COUNT; j++)
            if (!cmds[i]->hidden && taken(cmds[i], &cb_opt_table[j]))
                fish_option(cmds[i], &cb_opt_table[j], f);
}

int cb_opts_completion(const struct cmd *const *cmds, const char *shell, FILE *f)
{
    static const struct {
        const char *name;
        void (*write)(const struct cmd *const *, FILE *);
    } shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(shells[i].name, shell)) {
            shells[i].write(cmds, f);
            return 1;
        }
    return 0;
}
