/* SPDX-License-Identifier: MIT */
/* call_head.h - the beginning of a call written as a JSON object: its name, and where its arguments
 * stand. Forms: {"name": ..., "arguments": ...} with the keys that models use, and the same inside
 * "function". */
#ifndef CALL_HEAD_H
#define CALL_HEAD_H

#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"

enum { CALL_NAME = 256 };
/* What follows the text so far: more; nothing, since the model ended it, and brackets may be
 * missing; or nothing, since it was cut, and what is missing may be anything. */
enum text_end { TEXT_GOES_ON, TEXT_ENDED, TEXT_CUT };

enum call_head_status {
    HEAD_MORE,  /* s[n] does not tell yet */
    HEAD_NONE,  /* it is no call */
    HEAD_ARGS,  /* the arguments begin at args, and the name is known */
    HEAD_WHOLE, /* the object has ended: args and n_args are its arguments, n_args = 0: it has none;
                   `end`: after it */
};

struct call_head {
    char name[CALL_NAME];
    size_t args, n_args, end;
    int depth; /* objects that are open where the arguments begin: 1, or 2 inside "function" */
};

/* s[n] begins with '{'. strict: keys that no call has make it none. keyed: such a key of an object
 * is a tool's name. ended: as enum text_end. */
enum call_head_status cb_call_head(const char *s, size_t n, int strict, int keyed, int ended,
                                   struct call_head *out);
/* An object s[n] of a call without a key for its arguments: members that are properties of the tool
 * are the arguments, an object onto *out -> how many */
int cb_call_loose(const char *s, size_t n, const json_t *properties, struct buf *out);

#endif
