/* SPDX-License-Identifier: MIT */
/* listener.h - a TCP socket that listens. */
#ifndef LISTENER_H
#define LISTENER_H

/* host: a name or an address; port 0: any that is free. Returns a descriptor or a negative status.
 */
int cb_listen(const char *host, int port);
int cb_listener_port(int fd);

#endif
