/* SPDX-License-Identifier: MIT */
/* resident.h - memory of this process. */
#ifndef RESIDENT_H
#define RESIDENT_H

/* Resident bytes. Fails the test where the system does not tell. */
long cb_resident_bytes(void);

#endif
