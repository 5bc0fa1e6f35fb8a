/* SPDX-License-Identifier: MIT */
/* cmd.c - finds the sub-command, parses its options, turns its status into an exit status. */
#include "cmd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/suggest.h"
#include "cli/options/opts_files.h"
#include "cli/output/log.h"
#include "config.h"

static const struct cmd *const *cmds;  /* set from main()'s argument */
static int (*run_cmd)(struct opts *o); /* the same */

const struct cmd *const *cb_cmd_table(void)
{
    return cmds;
}

/* Occupies closed standard descriptors, else the next opened file would take their place. Their use
 * still fails. */
static void hold_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

static void list_commands(FILE *f)
{
    fputs("usage: ctxbank COMMAND [options]\n\n"
          "Runs language models with long contexts on ordinary servers.\n\nCommands:\n",
          f);
    for (int i = 0; cmds[i]; i++)
        if (!cmds[i]->hidden)
            fprintf(f, "  %-23s %s\n", cmds[i]->name, cmds[i]->brief);
    fputs("\n'ctxbank COMMAND --help' shows a command's options, 'ctxbank --version' the version.\n"
          "'man ctxbank' tells more; 'man ctxbank-policies' helps to choose a policy.\n",
          f);
}

/* The command that argv names in one or two words; *used: how many. */
static const struct cmd *command_of(int argc, char **argv, int *used)
{
    for (int i = 0; cmds[i]; i++) {
        const char *name = cmds[i]->name;
        const size_t n = strcspn(name, " ");
        if (strlen(argv[0]) != n || strncmp(name, argv[0], n))
            continue;
        *used = name[n] ? 2 : 1;
        if (!name[n] || (argc > 1 && !strcmp(name + n + 1, argv[1])))
            return cmds[i];
    }
    return NULL;
}

/* The i-th one-word name. */
static const char *command_name(const void *ctx, int i)
{
    (void)ctx;
    for (int j = 0; cmds[j]; j++)
        if (!strchr(cmds[j]->name, ' ') && !cmds[j]->hidden && i-- == 0)
            return cmds[j]->name;
    return NULL;
}

/* The i-th second word of a group's names. */
static const char *member_name(const void *ctx, int i)
{
    const char *group = ctx;
    const size_t n = strlen(group);

    for (int j = 0; cmds[j]; j++)
        if (!strncmp(cmds[j]->name, group, n) && cmds[j]->name[n] == ' ' && i-- == 0)
            return cmds[j]->name + n + 1;
    return NULL;
}

static int list_members(const char *group, FILE *f)
{
    const size_t n = strlen(group);

    fprintf(f, "usage: ctxbank %s COMMAND [options]\n\n", group);
    for (int i = 0; cmds[i]; i++)
        if (!strncmp(cmds[i]->name, group, n) && cmds[i]->name[n] == ' ')
            fprintf(f, "  %-23s %s\n", cmds[i]->name, cmds[i]->brief);
    return f == stdout ? 0 : 2;
}

static int is_help(const char *arg)
{
    return !strcmp(arg, "--help") || !strcmp(arg, "-h") || !strcmp(arg, "help");
}

/* What programs with a store of models have a command for, or NULL */
static const char *instead_of(const char *name)
{
    static const struct {
        const char *name, *instead;
    } known[] = {
        { "pull", "a model is a GGUF file, fetched by other means; give it with -m" },
        { "download", "a model is a GGUF file, fetched by other means; give it with -m" },
        { "list", "'ctxbank serve --models FOLDER' offers the GGUF files of a folder" },
        { "ls", "'ctxbank serve --models FOLDER' offers the GGUF files of a folder" },
        { "models", "'ctxbank serve --models FOLDER' offers the GGUF files of a folder" },
        { "show", "'ctxbank info -m FILE' shows a model" },
        { "ps", "GET /api/ps of 'ctxbank serve' tells which models are loaded" },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name))
            return known[i].instead;
    return NULL;
}

static int unknown(int argc, char **argv)
{
    const int grouped = member_name(argv[0], 0) != NULL;
    const char *near, *instead = grouped ? NULL : instead_of(argv[0]);

    if (instead) {
        fprintf(stderr, "ctxbank: %s: no such command; %s\n", argv[0], instead);
        return 2;
    }
    if (grouped && (argc < 2 || is_help(argv[1])))
        return list_members(argv[0], argc < 2 ? stderr : stdout);
    near = grouped ? cb_name_nearest(argv[1], strlen(argv[1]), member_name, argv[0])
                   : cb_name_nearest(argv[0], strlen(argv[0]), command_name, NULL);
    fprintf(stderr, "ctxbank: %s%s%s: no such command", argv[0], grouped ? " " : "",
            grouped ? argv[1] : "");
    if (near)
        fprintf(stderr, "; did you mean %s?\n", near);
    else
        fprintf(stderr, "; 'ctxbank %s%s--help' lists them\n", grouped ? argv[0] : "",
                grouped ? " " : "");
    return 2;
}

static int exit_status(int rc)
{
    if (rc >= 0)
        return rc;
    cb_log_failure(rc);
    return rc == CB_USAGE || rc == CB_EARG ? 2 : 1;
}

#ifdef __clang__
#define COMPILER __VERSION__ /* "Clang 14.0.6" */
#else
#define COMPILER "GCC " __VERSION__
#endif

/* verbose: what this build is made of as well, a line a fact */
static int version(int verbose)
{
    printf("ctxbank %s\n", cb_version());
    if (verbose) {
        printf("compiler: %s\nbuilt for: ", COMPILER);
        for (const char *at = CB_BUILT_WITH; *at; at++) /* "; " parts the facts */
            if (*at == ';' && at[1] == ' ')
                putchar('\n'), at++;
            else
                putchar(*at);
        putchar('\n');
    }
    return cb_out_flush();
}

static int is_verbose(const char *arg)
{
    return !strcmp(arg, "--verbose") || !strcmp(arg, "-v");
}

/* Former names work for a minor version at least, and say what takes their place. */
static void name_successors(const struct opts *o)
{
    char was[64], is[64];

    for (int i = 0; i < ARG_COUNT; i++) {
        const struct opt_row *row = &cb_opt_table[i];
        if (o->v[i].by_old == 1) {
            cb_log_note("warning: --%s is deprecated; use --%s", row->old, row->name);
        } else if (o->v[i].by_old) {
            cb_opt_env_name(row->old, was, sizeof was);
            cb_opt_env_name(row->name, is, sizeof is);
            cb_log_note("warning: %s is deprecated; use %s", was, is);
        }
    }
}

static int dispatch(struct opts *o)
{
    if (cb_opt_flag(o, ARG_HELP) || cb_opt_flag(o, ARG_HELP_ALL)) {
        cb_opts_help(o->cmd, cb_opt_flag(o, ARG_HELP_ALL), stdout);
        return cb_out_flush();
    }
    if (cb_opt_flag(o, ARG_VERSION))
        return version(cb_opt_flag(o, ARG_VERBOSE));
    cb_log_level(cb_opt_flag(o, ARG_QUIET)     ? LOG_QUIET
                 : cb_opt_flag(o, ARG_VERBOSE) ? LOG_VERBOSE
                                               : LOG_NORMAL);
    TRY(cb_opts_check_files(o));
    if (cb_opt_text(o, ARG_LOG_FILE))
        TRY(cb_log_open(cb_opt_text(o, ARG_LOG_FILE)));
    name_successors(o);
    return run_cmd(o);
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct opts o;
    int rc = cb_opts_parse(cmd, argc, argv, &o);

    if (!rc)
        rc = dispatch(&o);
    cb_opts_free(&o);
    if (rc >= 0 && cb_out_flush())
        rc = CB_EIO;
    return exit_status(rc);
}

static int help(int argc, char **argv)
{
    int used = 0;
    const struct cmd *cmd = argc ? command_of(argc, argv, &used) : NULL;

    if (argc && !cmd)
        return member_name(argv[0], 0) ? list_members(argv[0], stdout) : unknown(argc, argv);
    if (cmd)
        cb_opts_help(cmd, argc > used && !strcmp(argv[used], "all"), stdout);
    else
        list_commands(stdout);
    return exit_status(cb_out_flush());
}

int cb_cmd_main(const struct cmd *const *table, int (*run_one)(struct opts *o), int argc,
                char **argv)
{
    const struct cmd *cmd;
    int used;

    cmds = table;
    run_cmd = run_one;
    hold_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit then fails with an error */
    if (argc < 2) {
        list_commands(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--version"))
        return exit_status(version(argc > 2 && is_verbose(argv[2])));
    if (is_help(argv[1]))
        return help(argc - 2, argv + 2);
    cmd = command_of(argc - 1, argv + 1, &used);
    if (!cmd)
        return unknown(argc - 1, argv + 1);
    return run(cmd, argc - 1 - used, argv + 1 + used);
}
