/* SPDX-License-Identifier: MIT */
/* serve.c - ctxbank serve: a server for other programs. */
#include "serve/serve.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/err.h"
#include "base/macos.h"
#include "cli/cmd.h"
#include "cli/output/log.h"
#include "served_models.h"

enum { MOST_KEYS = 1024, GRACE_S = 20, TRIM_S = 1 };

/* ---- keys ---- */

struct keys {
    const char *at[MOST_KEYS];
    int n;
    struct buf file;
};

static int add_key(struct keys *k, const char *key)
{
    if (!*key)
        return CB_OK;
    if (k->n == MOST_KEYS)
        return cb_usage("api-key: more than %d keys", MOST_KEYS);
    k->at[k->n++] = key;
    return CB_OK;
}

/* One key a line; blank lines and those that begin with # count for nothing. */
static int read_keys(struct keys *k, const char *path)
{
    char *line, *rest;

    TRY(cb_read_file(path, &k->file));
    for (rest = k->file.s; (line = strsep(&rest, "\n"));) {
        line += strspn(line, " \t");
        line[strcspn(line, " \t\r")] = '\0';
        if (*line != '#')
            TRY(add_key(k, line));
    }
    return k->n ? CB_OK : cb_fail(CB_EFORMAT, "%s: has no key", path);
}

static int find_keys(const struct opts *o, struct keys *k)
{
    int n;
    const char *const *given = cb_opt_texts(o, ARG_API_KEY, &n);

    for (int i = 0; i < n; i++)
        TRY(add_key(k, given[i]));
    return cb_opt_set(o, ARG_API_KEY_FILE) ? read_keys(k, cb_opt_text(o, ARG_API_KEY_FILE)) : CB_OK;
}

/* ---- what the options say ---- */

/* A socket that systemd has opened for this process, or -1 (sd_listen_fds(3)) */
static int given_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");

    return pid && n && strtol(pid, NULL, 10) == (long)getpid() && !strcmp(n, "1") ? 3 : -1;
}

/* Each connection takes a descriptor. */
static void raise_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == r.rlim_max)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
}

static void log_request(const char *line)
{
    cb_log_detail("%s", line);
}

/* ---- signals ---- */

/* The server's threads inherit this, so that signals come to the main thread and wake it. */
static void block_signals(sigset_t *before)
{
    sigset_t all;

    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* the model file has shrunk: interrupt.c */
    pthread_sigmask(SIG_BLOCK, &all, before);
}

/* Each connection is a thread. glibc gives threads many arenas, keeps in each as much as the
 * largest block that was ever freed, and all pages below one in use: memory would grow for hours.
 */
#ifdef __GLIBC__
static void keep_little(void)
{
    mallopt(M_ARENA_MAX, 4);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

static void return_freed(void)
{
    (void)malloc_trim(0);
}
#else
static void keep_little(void)
{
}

static void return_freed(void)
{
}
#endif

static void wait_for_signal(struct serve *s)
{
    const struct timespec while_waiting = { .tv_sec = TRIM_S };
    sigset_t before;

    block_signals(&before); /* one that comes between the question and the wait is not lost */
    while (!cb_interrupted()) {
        cb_serve_tidy(s);
        return_freed();
        (void)ppoll(NULL, 0, &while_waiting, &before);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int open_server(const struct serve_params *p, struct serve **out)
{
    sigset_t before;
    int rc;

    block_signals(&before);
    rc = cb_serve_open(p, out);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* The server's own threads inherit the mask. While this one opens a model, which may take long, it
 * can be interrupted. */
static int begin_server(struct serve *s, struct served_models *models)
{
    const struct serve_models how = cb_served_models(models);
    sigset_t before;
    int rc;

    block_signals(&before);
    models->signals = &before;
    rc = cb_serve_begin(s, &how);
    models->signals = NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* ---- serving ---- */

static void say_where(const struct serve_params *p, const struct served_models *models,
                      const struct serve *s)
{
    const int v6 = strchr(p->host, ':') != NULL;

    if (models->n == 1)
        printf("%s", models->at[0].name);
    else
        printf("ctxbank with %d models", models->n);
    printf(" listens on http://%s%s%s:%d\n", v6 ? "[" : "", p->host, v6 ? "]" : "",
           cb_serve_port(s));
}

static int serve(const struct opts *o, const struct keys *keys)
{
    const struct serve_params p = { .host = cb_opt_text(o, ARG_HOST),
                                    .port = cb_opt_int(o, ARG_PORT),
                                    .listen_fd = given_socket(),
                                    .key = keys->at,
                                    .n_key = keys->n,
                                    .cors = cb_opt_text(o, ARG_CORS),
                                    .most_requests = (size_t)cb_opt_int64(o, ARG_REQUEST_MEMORY),
                                    .log = log_request };
    struct served_models models;
    struct serve *s = NULL;
    int rc = cb_served_models_open(o, &models);

    if (!rc)
        rc = open_server(&p, &s);
    if (!rc) {
        cb_interrupt_catch();
        rc = begin_server(s, &models);
    }
    if (!rc) {
        say_where(&p, &models, s);
        rc = cb_out_flush();
    }
    if (!rc)
        wait_for_signal(s);
    if (cb_interrupted())
        cb_log_note("going down: answers that are under way have %d seconds", GRACE_S);
    cb_serve_close(s, rc ? 0 : GRACE_S);
    cb_served_models_close(&models);
    return rc;
}

static int run(const struct opts *o)
{
    struct keys keys = { .n = 0 };
    int rc;

    if (!cb_opt_set(o, ARG_MODELS) && !cb_need_model(o))
        return CB_USAGE;
    raise_limit();
    keep_little();
    rc = find_keys(o, &keys);
    if (!rc)
        rc = serve(o, &keys);
    cb_buf_free(&keys.file);
    return rc;
}

const struct cmd cb_cmd_serve = {
    .name = "serve",
    .operands = "",
    .example = "-m model.gguf -c 32768 --bank-dir ~/banks",
    .brief = "serve a model over HTTP, compatible with OpenAI and Anthropic",
    .sets = SET_OWN_SERVE | SET_CHAT | SET_SAMPLE | SET_BANK_DIR | SET_MODEL | SET_ENGINE |
            SET_THREADS | SET_CTX | SET_POLICY | SET_GENERAL,
    .run = run,
};
