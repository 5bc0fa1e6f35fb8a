/* SPDX-License-Identifier: MIT */
/* pulse.h - signs of life around a ring of ranks: each rank sends one to the next rank every half
 * second, from a thread of its own, and watches the one before. A message carries, for every rank,
 * how many calls that rank has begun, as far as the sender has heard. */
#ifndef PULSE_H
#define PULSE_H

#include <mpi.h>
#include <stdint.h>

#include "ranks.h"

struct pulse;

/* comm: of these messages alone */
int cb_pulse_start(MPI_Comm comm, const struct ranks_params *p, const char (*host)[RANKS_HOST],
                   struct pulse **out);
/* Call on every rank, at the same point of the program. p may be NULL. */
void cb_pulse_stop(struct pulse *p);
void cb_pulse_begun(struct pulse *p, int64_t calls); /* this rank has begun this many calls */
int cb_pulse_lost(struct pulse *p);                  /* the rank that is lost, or -1 */
/* The rank that has begun the fewest calls, as far as this one has heard */
int cb_pulse_latest(struct pulse *p);

#endif
