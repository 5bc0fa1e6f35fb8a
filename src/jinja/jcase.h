/* SPDX-License-Identifier: MIT */
/* jcase.h - letters: small, capital, title. */
#ifndef JCASE_H
#define JCASE_H

#include "jvalue.h"

enum jcase { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };

int cb_jcase(struct jrun *r, const struct jstr *s, enum jcase how, struct jv *out);
uint32_t cb_jlower_of(uint32_t c);
uint32_t cb_jupper_of(uint32_t c);
int cb_jis_letter(uint32_t c);

#endif
