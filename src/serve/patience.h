/* SPDX-License-Identifier: MIT */
/* patience.h - how long clients may take to send a request and to take its answer. Each has some
 * seconds, and more for what it has sent or taken; who is late is cut off. While the server
 * computes, no time passes for its client. */
#ifndef PATIENCE_H
#define PATIENCE_H

#include <stddef.h>

struct patience;
struct client;

struct patience_params {
    double begin_s; /* for the headers; for the body and for the answer, before their bytes count */
    double rate;    /* bytes of a body or an answer that a client has a further second for */
    /* Once 7 of 8 connections are taken, headers have this long, so that others find a place. */
    double hurry_s;
    int most; /* connections */
};

/* Whose turn it is */
enum turn_of { TURN_HEADERS, TURN_BODY, TURN_ANSWER, TURN_SERVER };

int cb_patience_new(const struct patience_params *p, struct patience **out);
void cb_patience_free(struct patience *p); /* after all its clients; NULL is allowed */

/* A connection, at TURN_HEADERS. NULL: no memory, and the connection is cut off. */
struct client *cb_client_new(struct patience *p, int fd);
void cb_client_free(struct client *c); /* before fd is closed */
/* It is `turn` from now on, and bytes of a body came, or of an answer are there to be taken. */
void cb_client_turn(struct client *c, enum turn_of turn, size_t bytes);

#endif
