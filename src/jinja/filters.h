/* SPDX-License-Identifier: MIT */
/* filters.h - the two halves of the filters. */
#ifndef FILTERS_H
#define FILTERS_H

#include "native.h"

jfn cb_jlist_filter(const struct jstr *name); /* of lists: filters_list.c */

#endif
