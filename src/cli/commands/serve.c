/* SPDX-License-Identifier: MIT */
/* serve.c - ctxbank serve: a server for other programs. */
#include "serve/serve.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/err.h"
#include "base/utf8.h"
#include "cli/cmd.h"
#include "cli/output/log.h"
#include "cli/prompt.h"

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

/* The file's name without folders and .gguf */
static void name_of(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    size_t n;

    snprintf(out, cap, "%s", slash ? slash + 1 : path);
    n = strlen(out);
    if (n > 5 && !strcmp(out + n - 5, ".gguf"))
        out[n - 5] = '\0';
    out[cb_utf8_plain(out, strlen(out), "")] = '\0';
}

static void log_request(const char *line)
{
    cb_log_detail("%s", line);
}

static struct serve_model describe(const struct opts *o, const struct engine *e,
                                   const struct chat_choice *chat)
{
    return (struct serve_model){
        .model = e->model,
        .chat = chat->how,
        .system = cb_opt_text(o, ARG_SYSTEM),
        .pooling = cb_pooling_of(o),
        .sampler = cb_sampler_from(o),
        .seed_drawn = cb_opt_int64(o, ARG_SEED) < 0,
        .scheduler = { .slots = { .session = e->chosen,
                                  .n = cb_opt_int(o, ARG_PARALLEL),
                                  .most_bytes = (uint64_t)cb_opt_int64(o, ARG_BANK_LIMIT) },
                       .most_waiting = cb_opt_int(o, ARG_QUEUE),
                       .draft = cb_engine_draft(o),
                       .drafter = e->draft,
                       .decode_latency_s = cb_opt_int(o, ARG_DECODE_LATENCY) * 1e-3 },
    };
}

/* --bank-dir; a folder that cannot be used is no reason not to start. */
static cb_bank_dir *open_dir(const struct opts *o)
{
    const struct cb_bank_dir_params p = { (uint64_t)cb_opt_int64(o, ARG_BANK_DIR_SIZE) };
    const char *path = cb_opt_text(o, ARG_BANK_DIR);
    cb_bank_dir *dir = NULL;

    if (path && cb_bank_dir_open(path, &p, &dir))
        cb_log_note("%s; nothing is remembered", cb_error());
    return dir;
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

static void wait_for_signal(void)
{
    const struct timespec while_waiting = { .tv_sec = TRIM_S };
    sigset_t before;

    block_signals(&before); /* one that comes between the question and the wait is not lost */
    while (!cb_interrupted()) {
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

static int begin_server(struct serve *s, const struct serve_model *m)
{
    sigset_t before;
    int rc;

    block_signals(&before);
    rc = cb_serve_begin(s, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* ---- serving ---- */

/* The draft model's session, tried on a session of requests */
static int open_drafter(const struct opts *o, struct engine *e)
{
    cb_speculation *x;
    int rc;

    TRY(cb_engine_draft_session(o, e, e->n_ctx));
    if (!e->draft)
        return CB_OK;
    TRY(cb_speculation_new(e->session, 0, &x));
    rc = cb_speculation_set_draft(x, e->draft);
    cb_speculation_free(x);
    return rc;
}

/* A session as requests will have it: what is wrong with the options is said before the start, and
 * no request waits for the output head's preview. */
static int try_session(const struct opts *o, struct engine *e)
{
    const struct cb_sampler_params p = cb_sampler_from(o);
    int rc;

    TRY(cb_engine_session(o, e, cb_opt_text(o, ARG_POLICY), cb_opt_int(o, ARG_CTX)));
    if (cb_session_want_top(e->session, cb_sampler_top(&p)) == CB_ENOMEM)
        cb_log_note("not enough memory to prune the output head: tokens take longer");
    rc = open_drafter(o, e);
    cb_session_close(e->session);
    e->session = NULL;
    return rc;
}

static int begin(const struct opts *o, struct engine *e, struct chat_choice *chat, char *name,
                 struct serve *s)
{
    struct serve_model m;
    uint64_t fingerprint;
    char *text;

    TRY(cb_engine_open(o, e));
    if (cb_opt_set(o, ARG_CHAT_TEMPLATE) || cb_opt_set(o, ARG_CHAT_TEMPLATE_FILE) ||
        e->info.chat_form)
        TRY(cb_chat_choose(o, e, chat));
    else if (cb_chat_text(e->model, NULL, NULL, 0, 0, &text))
        cb_log_note("%s; only completions of texts will work", cb_error());
    TRY(try_session(o, e));
    m = describe(o, e, chat);
    m.name = name;
    m.scheduler.slots.dir = e->dir = open_dir(o);
    if (e->dir) /* now, so that the first question need not wait for it */
        TRY(cb_model_fingerprint(e->model, &fingerprint));
    return begin_server(s, &m);
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
    struct chat_choice chat = { 0 };
    struct engine e = { 0 };
    struct serve *s;
    char name[256];
    int rc;

    name_of(cb_opt_text(o, ARG_MODEL), name, sizeof name);
    if (cb_opt_set(o, ARG_ALIAS))
        snprintf(name, sizeof name, "%s", cb_opt_text(o, ARG_ALIAS));
    TRY(open_server(&p, &s));
    cb_interrupt_catch();
    rc = begin(o, &e, &chat, name, s);
    if (!rc) {
        const int v6 = strchr(p.host, ':') != NULL;
        printf("%s listens on http://%s%s%s:%d\n", name, v6 ? "[" : "", p.host, v6 ? "]" : "",
               cb_serve_port(s));
        rc = cb_out_flush();
    }
    if (!rc)
        wait_for_signal();
    if (cb_interrupted())
        cb_log_note("going down: answers that are under way have %d seconds", GRACE_S);
    cb_serve_close(s, rc ? 0 : GRACE_S);
    cb_chat_choice_free(&chat);
    cb_engine_close(&e);
    return rc;
}

static int run(const struct opts *o)
{
    struct keys keys = { .n = 0 };
    int rc;

    if (!cb_need_model(o))
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
    .brief = "answer other programs over HTTP, as OpenAI and Anthropic do",
    .sets = SET_OWN_SERVE | SET_CHAT | SET_SAMPLE | SET_BANK_DIR | SET_MODEL | SET_ENGINE |
            SET_CTX | SET_POLICY | SET_GENERAL,
    .run = run,
};
