/* SPDX-License-Identifier: MIT */
/* saved_about.h - what a saved session says of itself. */
#ifndef SAVED_ABOUT_H
#define SAVED_ABOUT_H

#include <jansson.h>

#include "session.h"

/* What a file of this session would say of itself. Call with the device locked: it may read the
 * model's weights. */
int cb_saved_about(const struct cb_session *s, json_t **out);
/* The part of it on which every bit of a prompt's keys and values depends, but for the tokens:
 * program, model, session without its capacity, device. NULL: out of memory, or no session */
json_t *cb_saved_settings(const json_t *about);
/* 1: the logits of its last token are there; 0: it was cut back to that token */
int cb_saved_has_logits(const json_t *about);

enum { SAVED_HEX = 17 };

void cb_saved_hex(uint64_t x, char out[SAVED_HEX]);
/* A hash of the frequencies, which scalings may choose by the context */
uint64_t cb_saved_rotation(const struct cb_session *s);
/* The session's device; NULL: out of memory */
json_t *cb_saved_device(const struct cb_session *s);

#endif
