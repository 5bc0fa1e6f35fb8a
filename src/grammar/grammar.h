/* SPDX-License-Identifier: MIT */
/* grammar.h - a grammar as the public interface hands it out. */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include "ctxbank.h"
#include "program.h"

struct cb_grammar {
    struct program program;
};

#endif
