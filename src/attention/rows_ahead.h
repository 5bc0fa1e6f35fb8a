/* SPDX-License-Identifier: MIT */
/* rows_ahead.h - stored rows that come to a device a layer ahead of need. */
#ifndef ROWS_AHEAD_H
#define ROWS_AHEAD_H

#include "attention.h"

/* Tells the device that layer l, the one behind the layer that begins now, will read the rows that
 * it has, or that which ones it reads is not known. */
void cb_attention_rows_ahead(const struct attention *a, int l);

#endif
