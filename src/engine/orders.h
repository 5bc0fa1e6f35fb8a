/* SPDX-License-Identifier: MIT */
/* orders.h - what rank 0 tells the others: a call and its numbers. */
#ifndef ORDERS_H
#define ORDERS_H

#include <stdint.h>

enum { ORDER_NUMBERS = 20 }; /* of a draft, or of a cut; a prompt's tokens follow */

struct order {
    int32_t verb, n;
    int32_t number[ORDER_NUMBERS];
};

#endif
