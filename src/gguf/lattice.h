/* SPDX-License-Identifier: MIT */
/* lattice.h - the points that eight (IQ3: four) weights of the types IQ1_S to IQ3_S are places of.
 * A point is a list of places in the type's magnitudes: 2 bits each, IQ3 3 bits, the first weight
 * in the lowest bits. */
#ifndef LATTICE_H
#define LATTICE_H

#include <stdint.h>

extern const uint16_t cb_lattice_iq1[2048];
extern const uint16_t cb_lattice_iq2_xxs[256];
extern const uint16_t cb_lattice_iq2_xs[512];
extern const uint16_t cb_lattice_iq2_s[1024];
extern const uint16_t cb_lattice_iq3_xxs[256];
extern const uint16_t cb_lattice_iq3_s[512];

#endif
