/* SPDX-License-Identifier: MIT */
/* split_rows.h - a device whose matrices are dealt out to the ranks of a team, by rows. Its op
 * table stands before that of the device: a product computes this rank's rows, and the ranks share
 * them. Everything else is computed on each rank. A row's sum is one rank's, so that results have
 * the bits of one process. */
#ifndef SPLIT_ROWS_H
#define SPLIT_ROWS_H

#include "device.h"
#include "ranks/ranks.h"

/* Call before weights are loaded; the team outlives the device. CB_EUNSUPPORTED where the device
 * has memory of its own. */
int cb_split_rows_open(struct device *d, struct ranks *team);
/* Call after weights are unloaded, before the device is closed; without a split, does nothing. */
void cb_split_rows_close(struct device *d);
/* 1: it is split. Of n rows, those that this rank has */
int cb_split_rows_is(const struct device *d);
int cb_split_rows_own(const struct device *d, int n);
/* A failure of any product so far: results since then are undefined. */
int cb_split_rows_status(const struct device *d);
int cb_split_rows_most(const struct device *d, int n); /* the most that a rank has */

#endif
