/* SPDX-License-Identifier: MIT */
/* matrix.h - which policies go with which forms of prefill. All of them go with every type of keys
 * and values (tests/methods/check_matrix.c). */
#ifndef MATRIX_H
#define MATRIX_H

enum { MATRIX_FORMS = 8 };

struct matrix_row {
    char policy[96];               /* NAME, or NAME:key=value where that changes the answers */
    const char *why[MATRIX_FORMS]; /* [i] why it does not go with form i; NULL: it does */
};

/* The next row; start with *i = *j = 0. 0: there is none */
int cb_matrix_next(int *i, int *j, struct matrix_row *out);

#endif
