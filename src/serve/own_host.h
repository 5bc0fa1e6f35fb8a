/* SPDX-License-Identifier: MIT */
/* own_host.h - whether a request means this server. A page of another site can give its own name
 * the address of this machine; its requests then bear that name. */
#ifndef OWN_HOST_H
#define OWN_HOST_H

/* host: of a request, "NAME" or "NAME:PORT". 1: it is localhost, a loopback address, or `own`, what
 * the server listens on; if that is all addresses, any address, since those are no names. */
int cb_host_is_own(const char *host, const char *own);

#endif
