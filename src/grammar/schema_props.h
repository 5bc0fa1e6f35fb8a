/* SPDX-License-Identifier: MIT */
/* schema_props.h - what a set of schemas says of an object's properties. */
#ifndef SCHEMA_PROPS_H
#define SCHEMA_PROPS_H

#include "schema.h"

enum { MOST_PATTERNS = 5 };

struct props {
    const struct schema_set *of;
    struct prop {
        const char *key; /* ends in NUL */
        size_t key_n;
        int required;
        int32_t first, last; /* of part[], -1: none */
    } * prop;                /* [n] in the order in which they are named */
    size_t n, cap;
    struct prop_part {
        struct sval *v; /* a schema of the property */
        int32_t member; /* of the set, which lists it */
        int32_t next;
    } * part;
    size_t n_part, cap_part;
    struct ids keys;
    int32_t
        *closing; /* [n_closing] members that say something of properties that they do not list */
    size_t n_closing, cap_closing;
    struct {
        struct sval *v; /* a member of patternProperties */
        int32_t member;
    } pattern[MOST_PATTERNS];
    int n_pattern;
    int more;  /* 1: there may be properties that are not listed */
    int named; /* 1: propertyNames lists all keys */
};

int cb_props_open(struct schema *s, const struct schema_set *c, struct props *p);
void cb_props_close(struct schema *s, struct props *p);
/* Adds what property i must fit to c. */
int cb_props_value(struct schema *s, struct props *p, size_t i, struct schema_set *c);
/* The same of properties that are not listed and whose keys fit the patterns in the mask `which` */
int cb_props_other(struct schema *s, struct props *p, unsigned which, struct schema_set *c);
/* Their keys, in quotes -> *e. 0: there are none; 1 */
int cb_props_key(struct schema *s, struct props *p, unsigned which, int *e);

#endif
