/* SPDX-License-Identifier: MIT */
/* http.c - the server over libmicrohttpd: a thread for each connection, which reads the request,
 * waits for the answer, and watches whether its client is still there. */
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "base/macos.h"
#include "exchange.h"
#include "http_access.h"
#include "http_framing.h"
#include "listener.h"
#include "model_shelf.h"
#include "patience.h"
#include "prefix_store.h"

enum {
    CONNECTIONS = 1024,
    BODY = 64 << 20,
    REQUESTS = 512 << 20,
    HEADERS = 32 << 10, /* bytes of a connection's own memory */
    IDLE_S = 60,        /* a client that neither sends nor takes anything is dropped */
    SLOW = 16 << 10,    /* and one that is slower than this many bytes a second for as long */
    HURRY_S = 5,        /* what headers have while most connections are taken */
    SEND_S = 5,         /* that answers have to reach their clients when the server goes down */
    REQUEST_S = 600,    /* and one that takes longer to send a request */
    STACK = 2 << 20     /* of a connection's thread: templates and JSON nest */
};

struct serve {
    struct serve_params p;
    struct MHD_Daemon *daemon;
    int port;
    struct patience *patience;
    struct prefix_store *documents;
    struct model_shelf *shelf;
    _Atomic(struct model_shelf *) ready; /* the same once its models can be had */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    /* under the lock: */
    int n_answering; /* requests whose answer is not on its way entirely */
    size_t held;     /* bytes of all requests under way */
};

struct http_request {
    struct serve *serve;
    struct MHD_Connection *connection;
    struct client *client;
    struct exchange x;
    char *path;
    double began;
    size_t held, n_read; /* bytes of memory, of the body so far */
    int can_wait;        /* 1: HTTP/1.1, whose clients know interim answers */
    int probed;          /* a client that has sent its last was asked whether it is there */
    int refused;         /* status that answers the rest of the body, which is dropped, or 0 */
    /* of a stream */
    struct buf piece;
    size_t sent; /* bytes of it */
    int ended, counted;
};

static void count_answering(struct serve *s, int n)
{
    pthread_mutex_lock(&s->lock);
    s->n_answering += n;
    pthread_cond_broadcast(&s->answered);
    pthread_mutex_unlock(&s->lock);
}

/* ---- memory ---- */

/* Takes memory for the request, until it ends. 0, or the status of an error: there is too little */
static int take_memory(struct http_request *r, size_t bytes)
{
    struct serve *s = r->serve;
    int status = bytes > s->p.most_requests - r->held ? 413 : 0;

    pthread_mutex_lock(&s->lock);
    if (!status && bytes > s->p.most_requests - s->held)
        status = 503;
    bytes = status ? 0 : bytes;
    s->held += bytes;
    r->x.request_bytes = s->held;
    pthread_mutex_unlock(&s->lock);
    r->held += bytes;
    return status;
}

/* The same while the request is read; 0: it is refused */
static int hold(struct http_request *r, size_t bytes)
{
    if (!r->refused)
        r->refused = take_memory(r, bytes);
    return !r->refused;
}

static int fail_memory(const struct http_request *r, int status)
{
    return cb_fail(status == 413 ? SERVE_ETOOLARGE : SERVE_EBUSY,
                   "%s (limit of the server: %zu bytes)",
                   status == 413 ? "the request takes too much memory"
                                 : "the requests under way leave no memory for this one: try again",
                   r->serve->p.most_requests);
}

static int hold_more(void *arg, size_t bytes)
{
    struct http_request *r = arg;
    const int status = take_memory(r, bytes);

    return status ? fail_memory(r, status) : CB_OK;
}

static void give_back(void *arg, size_t bytes)
{
    struct http_request *r = arg;

    bytes = bytes < r->held ? bytes : r->held;
    r->held -= bytes;
    pthread_mutex_lock(&r->serve->lock);
    r->serve->held -= bytes;
    pthread_mutex_unlock(&r->serve->lock);
}

static void let_go(struct http_request *r)
{
    cb_buf_free(&r->x.body);
    pthread_mutex_lock(&r->serve->lock);
    r->serve->held -= r->held;
    pthread_mutex_unlock(&r->serve->lock);
    r->held = 0;
}

/* ---- is the client there ---- */

/* A client that has sent its last has closed its connection, or half of it. An interim answer,
 * which it need not understand, is refused by the system of one that is not there. A stream's
 * pieces do the same. */
static int answers_no_probe(struct http_request *r, int fd)
{
    static const char probe[] = "HTTP/1.1 100 Continue\r\n\r\n";

    if (r->x.stream)
        return 0;
    if (!r->can_wait)
        return 1;
    if (!r->probed)
        (void)!send(fd, probe, sizeof probe - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    r->probed = 1;
    return 0;
}

static int has_gone(void *arg)
{
    struct http_request *r = arg;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd p = { .fd = info->connect_fd, .events = POLLRDHUP };

    if (poll(&p, 1, 0) <= 0)
        return 0;
    return p.revents & (POLLHUP | POLLERR) || (p.revents & POLLRDHUP && answers_no_probe(r, p.fd));
}

/* ---- answers ---- */

/* A page runs its own scripts alone, and talks to this server alone. */
static void add_policy(const char *nonce, struct MHD_Response *response)
{
    char text[512];

    snprintf(text, sizeof text,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
             "require-trusted-types-for 'script'; trusted-types 'none'",
             nonce, nonce);
    MHD_add_response_header(response, "Content-Security-Policy", text);
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
}

static void add_headers(struct http_request *r, struct MHD_Response *response)
{
    const struct serve_params *p = &r->serve->p;
    char seconds[16];

    if (r->x.type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, r->x.type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (r->x.stream) /* proxies shall pass pieces on as they come */
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    snprintf(seconds, sizeof seconds, "%d", r->x.retry_after);
    if (r->x.retry_after)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    if (*r->x.allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, r->x.allow);
    if (*r->x.nonce)
        add_policy(r->x.nonce, response);
    if (r->x.status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (!p->cors)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", p->cors);
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    /* * is any header but Authorization: OpenAI's and Anthropic's clients send many of their own */
    MHD_add_response_header(response, "Access-Control-Allow-Headers", "Authorization, *");
}

static void time_limit(const struct http_request *r, unsigned seconds)
{
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

/* A piece of a stream: waits for it if there is none. */
static ssize_t read_stream(void *arg, uint64_t at, char *to, size_t most)
{
    struct http_request *r = arg;
    size_t n;

    (void)at;
    if (r->sent == r->piece.n) {
        if (r->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        cb_buf_clear(&r->piece);
        r->sent = 0;
        time_limit(r, 0); /* that the model takes its time is not the client's fault */
        cb_client_turn(r->client, TURN_SERVER, 0);
        r->ended = !r->x.stream->next(r->x.stream, &r->piece);
        cb_client_turn(r->client, TURN_ANSWER, r->piece.n);
        time_limit(r, IDLE_S);
        if (r->piece.failed || cb_exchange_lacks())
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (!r->piece.n)
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    n = r->piece.n - r->sent < most ? r->piece.n - r->sent : most;
    memcpy(to, r->piece.s + r->sent, n);
    r->sent += n;
    return (ssize_t)n;
}

/* A response that owns the text */
static struct MHD_Response *take_text(struct buf *text)
{
    const size_t n = text->n;
    char *s = cb_buf_take(text);
    struct MHD_Response *response =
        s ? MHD_create_response_from_buffer(n, s, MHD_RESPMEM_MUST_FREE) : NULL;

    if (!response)
        free(s);
    return response;
}

static enum MHD_Result send_answer(struct http_request *r)
{
    const size_t n = r->x.stream ? 0 : r->x.out.n;
    struct MHD_Response *response;
    enum MHD_Result sent;

    if (r->x.stream)
        response =
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_stream, r, NULL);
    else
        response = take_text(&r->x.out);
    if (!response)
        return MHD_NO;
    cb_client_turn(r->client, TURN_ANSWER, n);
    add_headers(r, response);
    sent = MHD_queue_response(r->connection, (unsigned)r->x.status, response);
    MHD_destroy_response(response);
    return sent;
}

static enum MHD_Result refuse(struct http_request *r, int status, const char *why)
{
    cb_exchange_error(&r->x, status, why, NULL);
    return send_answer(r);
}

/* ---- requests ---- */

static struct http_request *new_request(struct serve *s, struct MHD_Connection *c, const char *path,
                                        const char *method, const char *version)
{
    const union MHD_ConnectionInfo *of =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_request *r = of->socket_context ? cb_calloc(1, sizeof *r) : NULL;

    if (!r)
        return NULL;
    *r = (struct http_request){ .serve = s,
                                .connection = c,
                                .client = of->socket_context,
                                .path = strdup(cb_http_path(path)),
                                .can_wait = !strcmp(version, "HTTP/1.1"),
                                .began = cb_now_s() };
    r->x = (struct exchange){ .method = method,
                              .path = r->path,
                              .gone = has_gone,
                              .gone_arg = r,
                              .hold = hold_more,
                              .give_back = give_back,
                              .hold_arg = r };
    if (r->path)
        return r;
    free(r);
    return NULL;
}

/* Once the headers are there: what is refused is refused before its body comes. */
static enum MHD_Result on_headers(struct http_request *r)
{
    const struct serve_params *p = &r->serve->p;
    const char *length =
        MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Length");
    const char *why;
    int status;

    cb_client_turn(r->client, TURN_BODY, 0);
    r->x.tenant = cb_route_is_open(r->path) ? 0 : cb_http_tenant(r->connection, p);
    status = cb_http_why_not(r->connection, p, &why);
    if (!status)
        status = cb_http_framing_why_not(r->connection, &why);
    if (status)
        return refuse(r, status, why);
    if (!strcmp(r->x.method, "OPTIONS") && p->cors) {
        r->x.status = 204;
        return send_answer(r);
    }
    if (r->x.tenant < 0)
        return refuse(r, 401, "no valid API key");
    if (length && strtoull(length, NULL, 10) > p->most_body)
        return refuse(r, 413, "the body is too large");
    return MHD_YES;
}

static enum MHD_Result on_body(struct http_request *r, const char *data, size_t *n)
{
    r->n_read += *n;
    cb_client_turn(r->client, TURN_BODY, *n);
    if (r->n_read > r->serve->p.most_body || cb_now_s() - r->began > REQUEST_S)
        return MHD_NO; /* no length was told, or a lie: the connection is closed */
    if (hold(r, *n))
        cb_buf_add(&r->x.body, data, *n);
    else
        let_go(r);
    *n = 0;
    return r->x.body.failed ? MHD_NO : MHD_YES;
}

static enum MHD_Result refuse_memory(struct http_request *r)
{
    const int status = r->refused;

    let_go(r);
    (void)fail_memory(r, status);
    return refuse(r, status, cb_error());
}

/* Memory in which the request is read */
static int hold_reading(struct http_request *r)
{
    const struct buf *body = &r->x.body;
    const size_t bytes = cb_route_cost(r->x.method, r->path, body->n ? body->s : "", body->n);

    if (!hold(r, bytes))
        return 0;
    r->x.reading = bytes;
    return 1;
}

/* The answer is all that is left of the request. */
static void keep_answer(struct http_request *r)
{
    const size_t bytes = 2 * r->x.out.n; /* a buffer that has grown */

    if (bytes < r->held)
        give_back(r, r->held - bytes);
}

static void give_model_back(struct http_request *r)
{
    if (r->x.s)
        cb_shelf_give(r->x.shelf, r->x.s);
    r->x.s = NULL;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **state)
{
    struct http_request *r = *state;

    if (!r) {
        *state = r = new_request(arg, c, path, method, version);
        return r ? on_headers(r) : MHD_NO;
    }
    r->x.method = method; /* the text may have moved */
    if (*n)
        return on_body(r, data, n);
    if (!hold_reading(r))
        return refuse_memory(r);
    r->x.shelf = atomic_load(&r->serve->ready);
    r->x.model = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "model");
    r->counted = 1;
    count_answering(r->serve, 1);
    time_limit(r, 0);
    cb_client_turn(r->client, TURN_SERVER, 0);
    cb_route(&r->x);
    if (!r->x.stream) {
        keep_answer(r);
        give_model_back(r);
    }
    time_limit(r, IDLE_S);
    return send_answer(r);
}

static void on_end(void *arg, struct MHD_Connection *c, void **state,
                   enum MHD_RequestTerminationCode code)
{
    struct serve *s = arg;
    struct http_request *r = *state;
    struct buf line = { 0 };

    (void)c;
    if (!r)
        return;
    cb_client_turn(r->client, TURN_HEADERS, 0); /* of the next request */
    if (s->p.log) {
        cb_buf_print(&line, "%s %d %.3f s%s", r->path, r->x.status, cb_now_s() - r->began,
                     code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : ", not finished");
        s->p.log(line.s ? line.s : r->path);
        cb_buf_free(&line);
    }
    if (r->x.stream)
        r->x.stream->close(r->x.stream);
    give_model_back(r);
    if (r->counted)
        count_answering(s, -1);
    cb_buf_free(&r->x.out);
    cb_buf_free(&r->piece);
    let_go(r);
    free(r->path);
    free(r);
    *state = NULL;
}

/* A connection begins or ends. */
static void on_connection(void *arg, struct MHD_Connection *c, void **client,
                          enum MHD_ConnectionNotificationCode code)
{
    struct serve *s = arg;

    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        *client = cb_client_new(
            s->patience, MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    else
        cb_client_free(*client);
}

/* ---- open and close ---- */

static int start_daemon(struct serve *s, int fd)
{
    const struct patience_params p = {
        .begin_s = IDLE_S, .rate = SLOW, .hurry_s = HURRY_S, .most = s->p.connections
    };

    TRY(cb_patience_new(&p, &s->patience));
    s->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
            MHD_USE_ITC,
        0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED,
        on_end, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)s->p.connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK, MHD_OPTION_END);
    return s->daemon ? CB_OK : cb_fail(CB_EIO, "serve: %s", strerror(errno));
}

static void free_serve(struct serve *s)
{
    cb_patience_free(s->patience);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->answered);
    free(s);
}

int cb_serve_open(const struct serve_params *p, struct serve **out)
{
    struct serve *s = cb_calloc(1, sizeof *s);
    int fd, rc;

    *out = NULL;
    if (!s)
        return CB_ENOMEM;
    cb_json_watch();
    s->p = *p;
    pthread_mutex_init(&s->lock, NULL);
    cb_clock_cond(&s->answered);
    s->p.most_body = p->most_body ? p->most_body : BODY;
    s->p.most_requests = p->most_requests ? p->most_requests : REQUESTS;
    s->p.connections = p->connections ? p->connections : CONNECTIONS;
    fd = p->listen_fd >= 0 ? p->listen_fd : cb_listen(p->host ? p->host : "127.0.0.1", p->port);
    rc = fd < 0 ? fd : CB_OK;
    if (!rc) {
        s->port = cb_listener_port(fd);
        rc = start_daemon(s, fd);
        if (rc)
            close(fd);
    }
    if (rc)
        free_serve(s);
    else
        *out = s;
    return rc;
}

int cb_serve_port(const struct serve *s)
{
    return s->port;
}

/* A single model is opened at once, so that what is wrong with it is told at the start. */
static int open_first(struct serve *s, const struct serve_models *m)
{
    struct server *v;

    if (m->several)
        return CB_OK;
    TRY(cb_shelf_take(s->shelf, 0, NULL, NULL, &v));
    cb_shelf_give(s->shelf, v);
    return CB_OK;
}

int cb_serve_begin(struct serve *s, const struct serve_models *m)
{
    struct model_shelf_params p = { .models = *m,
                                    .n_tenant = s->p.n_key ? s->p.n_key : 1,
                                    .most_requests = s->p.most_requests };

    TRY(cb_prefix_store_new(s->p.most_requests / 8, &s->documents));
    p.documents = s->documents;
    TRY(cb_shelf_open(&p, &s->shelf));
    TRY(open_first(s, m));
    atomic_store(&s->ready, s->shelf);
    return CB_OK;
}

void cb_serve_tidy(struct serve *s)
{
    cb_shelf_tidy(s->shelf);
}

/* Until clients have what was written for them, for a moment at most */
static void wait_for_answers(struct serve *s)
{
    const struct timespec until = cb_clock_in(SEND_S);

    pthread_mutex_lock(&s->lock);
    while (s->n_answering && !pthread_cond_timedwait(&s->answered, &s->lock, &until))
        ;
    pthread_mutex_unlock(&s->lock);
}

void cb_serve_close(struct serve *s, double grace_s)
{
    MHD_socket fd;

    if (!s)
        return;
    fd = MHD_quiesce_daemon(s->daemon);
    cb_shelf_stop(s->shelf, grace_s);
    wait_for_answers(s);
    MHD_stop_daemon(s->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
    cb_shelf_close(s->shelf);
    cb_prefix_store_free(s->documents);
    free_serve(s);
}
