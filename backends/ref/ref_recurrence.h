/* SPDX-License-Identifier: MIT */
/* ref_recurrence.h - the reference of layers that remember without keys. */
#ifndef REF_RECURRENCE_H
#define REF_RECURRENCE_H

#include "device/device.h"

void cb_ref_short_conv(struct device *d, const struct short_conv *c, int n);
void cb_ref_decays(struct device *d, const struct decays *x);
void cb_ref_recurrence(struct device *d, const struct recurrence *r, int n);

#endif
