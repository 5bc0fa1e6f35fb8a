/* SPDX-License-Identifier: MIT */
/* fuzz_http.c - bytes that a client sends over a connection, to a server whose model is still being
 * loaded: framing, headers, who asks. The server answers what it understands and closes. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/own_host.h"
#include "serve/serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct serve *server(void)
{
    static const char *const key[] = { "secret" };
    static const struct serve_params p = { .listen_fd = -1, .key = key, .n_key = 1, .cors = "*" };
    static struct serve *s;

    if (!s && cb_serve_open(&p, &s))
        abort();
    return s;
}

static int connect_to(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    const struct linger reset = { 1, 0 }; /* no connection waits for its end */
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) ||
        connect(fd, (struct sockaddr *)&to, sizeof to))
        abort();
    return fd;
}

/* Names of hosts alone are many times as fast. */
static void ask_host(const uint8_t *data, size_t n)
{
    char *host = malloc(n + 1);

    if (!host)
        return;
    memcpy(host, data, n);
    host[n] = '\0';
    (void)cb_host_is_own(host, "127.0.0.1");
    (void)cb_host_is_own(host, "::");
    (void)cb_host_is_own("localhost:80", host);
    free(host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char answer[4096];
    int fd;

    ask_host(data, n);
    fd = connect_to(cb_serve_port(server()));
    if (send(fd, data, n, MSG_NOSIGNAL) >= 0 && !shutdown(fd, SHUT_WR))
        while (recv(fd, answer, sizeof answer, 0) > 0)
            continue;
    close(fd);
    return 0;
}
