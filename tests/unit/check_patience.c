/* SPDX-License-Identifier: MIT */
/* check_patience.c - clients that are late are cut off, others are not; names that are the
 * server's own. */
#include <check.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "kit/suite.h"
#include "kit/toy.h"
#include "serve/own_host.h"
#include "serve/patience.h"

enum { MOST = 16 };
static const double never = 1e6;

static struct patience *p;

static void begin(double begin_s, double hurry_s)
{
    const struct patience_params how = {
        .begin_s = begin_s, .rate = 1 << 20, .hurry_s = hurry_s, .most = MOST
    };
    ck_assert_ok(cb_patience_new(&how, &p));
}

struct pair {
    struct client *c;
    int fd[2]; /* the server's, the client's */
};

static struct pair join(void)
{
    struct pair x;

    ck_assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, x.fd));
    x.c = cb_client_new(p, x.fd[0]);
    ck_assert_ptr_nonnull(x.c);
    return x;
}

static void leave(struct pair *x)
{
    cb_client_free(x->c);
    close(x->fd[0]);
    close(x->fd[1]);
}

/* Waits so long at most until the client is cut off. */
static int is_cut(const struct pair *x, double wait_s)
{
    struct pollfd f = { .fd = x->fd[1], .events = POLLIN };

    return poll(&f, 1, (int)(wait_s * 1000)) > 0;
}

/* Each turn of a client ends, whatever it has done before; the server's does not. */
START_TEST(each_turn_ends)
{
    struct pair late, busy;

    begin(0.2, 0.1);
    late = join();
    busy = join();
    cb_client_turn(busy.c, TURN_BODY, 10);
    cb_client_turn(busy.c, TURN_SERVER, 0);
    cb_client_turn(late.c, (enum turn_of)_i, _i == TURN_HEADERS ? 0 : 100);
    ck_assert(is_cut(&late, 60));
    ck_assert(!is_cut(&busy, 0.5));
    cb_client_turn(busy.c, TURN_ANSWER, 10);
    ck_assert(is_cut(&busy, 60));
    leave(&late);
    leave(&busy);
    cb_patience_free(p);
}
END_TEST

/* A byte now and then buys no time: turns of a kind count together. */
START_TEST(trickling)
{
    struct pair x;

    begin(0.3, 0.1);
    x = join();
    for (int i = 0; !is_cut(&x, 0.01); i++) {
        ck_assert_int_lt(i, 6000);
        cb_client_turn(x.c, TURN_SERVER, 0);
        cb_client_turn(x.c, (enum turn_of)_i, 1);
    }
    leave(&x);
    cb_patience_free(p);
}
END_TEST

/* What came counts for the client, and a new request begins from nothing. */
START_TEST(bytes_buy_time)
{
    struct pair x;

    begin(0.2, 0.1);
    x = join();
    cb_client_turn(x.c, TURN_BODY, (size_t)1 << 40);
    ck_assert(!is_cut(&x, 0.6));
    cb_client_turn(x.c, TURN_ANSWER, (size_t)1 << 40);
    ck_assert(!is_cut(&x, 0.6));
    cb_client_turn(x.c, TURN_HEADERS, 0);
    ck_assert(is_cut(&x, 60));
    leave(&x);
    cb_patience_free(p);
}
END_TEST

/* What one part of an exchange took is not counted for the next. */
START_TEST(each_part_has_its_time)
{
    struct pair x;

    begin(3, 0.1);
    x = join();
    ck_assert(!is_cut(&x, 1.3));
    cb_client_turn(x.c, TURN_BODY, 1);
    ck_assert(!is_cut(&x, 1.3));
    cb_client_turn(x.c, TURN_ANSWER, 1);
    ck_assert(!is_cut(&x, 1.3));
    leave(&x);
    cb_patience_free(p);
}
END_TEST

/* When most places are taken, those who have sent no request yet make room; others do not. */
START_TEST(crowd)
{
    struct pair x[MOST];

    begin(never, 0.2);
    for (int i = 0; i < MOST - 2; i++)
        x[i] = join();
    ck_assert(!is_cut(&x[0], 0.6));
    cb_client_turn(x[1].c, TURN_BODY, 1);
    cb_client_turn(x[2].c, TURN_ANSWER, 1);
    cb_client_turn(x[3].c, TURN_SERVER, 0);
    x[MOST - 2] = join();
    ck_assert(is_cut(&x[0], 60));
    ck_assert(is_cut(&x[MOST - 2], 60));
    for (int i = 1; i < 4; i++)
        ck_assert(!is_cut(&x[i], 0.1));
    for (int i = 0; i < MOST - 1; i++)
        leave(&x[i]);
    cb_patience_free(p);
}
END_TEST

static const struct {
    const char *host, *own;
    int is;
} hosts[] = {
    { "localhost", "127.0.0.1", 1 },
    { "LocalHost.:8080", "127.0.0.1", 1 },
    { "127.0.0.1:1", "192.168.1.5", 1 },
    { "127.9.9.9", "127.0.0.1", 1 },
    { "[::1]", "127.0.0.1", 1 },
    { "[::1]:80", "::", 1 },
    { "192.168.1.5:80", "192.168.1.5", 1 },
    { "box.lan:80", "box.lan", 1 },
    { "192.168.1.5", "0.0.0.0", 1 },
    { "[fe80::1]:80", "::", 1 },
    { "192.168.1.5", "127.0.0.1", 0 },
    { "evil.example", "127.0.0.1", 0 },
    { "evil.example", "0.0.0.0", 0 },
    { "evil.example", "::", 0 },
    { "127.0.0.1.evil.example", "127.0.0.1", 0 },
    { "127.0.0.1evil", "0.0.0.0", 0 },
    { "localhost.evil.example:80", "127.0.0.1", 0 },
    { "localhost:evil", "127.0.0.1", 0 },
    { "localhost:80.evil.example", "127.0.0.1", 0 },
    { "[::1].evil.example", "::", 0 },
    { "[::1]80", "::", 0 },
    { "[::1]x80", "127.0.0.1", 0 },
    { "[::1", "::", 0 },
    { "[]", "::", 0 },
    { "", "127.0.0.1", 0 },
    { ":80", "127.0.0.1", 0 },
    { ".", "127.0.0.1", 0 },
    { "0x7f000001", "0.0.0.0", 0 },
};

START_TEST(own_hosts)
{
    ck_assert_msg(cb_host_is_own(hosts[_i].host, hosts[_i].own) == hosts[_i].is, "%s on %s",
                  hosts[_i].host, hosts[_i].own);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("patience");
    TCase *t = tcase_create("clients");

    tcase_add_loop_test(t, each_turn_ends, TURN_HEADERS, TURN_SERVER);
    tcase_add_loop_test(t, trickling, TURN_BODY, TURN_SERVER);
    tcase_add_test(t, bytes_buy_time);
    tcase_add_test(t, each_part_has_its_time);
    tcase_add_test(t, crowd);
    tcase_add_loop_test(t, own_hosts, 0, sizeof hosts / sizeof *hosts);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
