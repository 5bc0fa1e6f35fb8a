/* SPDX-License-Identifier: MIT */
/* pick.h - which device of this machine is the fastest for a model, by measured limits. */
#ifndef DEVICE_PICK_H
#define DEVICE_PICK_H

#include "device.h"
#include "limits.h"

/* What a model asks of a device */
struct device_load {
    double flop, bytes; /* operations of a token; bytes of all weights that a token multiplies */
    int n_layer;
};

/* Seconds for a prompt of PICK_PROMPT tokens and PICK_ANSWER generated ones, if every op reached
 * the device's limits. room: bytes of its own memory; 0: its memory is the host's. What does not
 * fit there is copied in for a prompt and read by the CPU, whose limits are `host`, for a token. */
enum { PICK_PROMPT = 512, PICK_ANSWER = 128 };
double cb_device_seconds(const struct device_load *m, const double *limit, const double *host,
                         uint64_t room);

/* -> the name of the device that needs the fewest seconds, and why, in one line. The CPU is
 * measured only where there is a choice. A device that does not open is named in the line. */
int cb_device_pick(const struct device_load *m, const struct team_params *t,
                   const struct device_want *want, char name[32], char *why, size_t size);

#endif
