/* SPDX-License-Identifier: MIT */
/* call_text.h - what the readers of calls share: looking at the text, handing calls out. */
#ifndef CALL_TEXT_H
#define CALL_TEXT_H

#include "base/json.h"
#include "call_head.h"
#include "json_scan.h"

struct call_sink {
    void (*begin)(void *arg, const char *name);
    void (*args)(void *arg, const char *s, size_t n); /* a piece of the JSON text */
    void (*end)(void *arg);
    void *arg;
};

/* What opens and closes calls in a text. strict: it may be something else, so the tool must be one
 * that the model was told of. */
struct call_form {
    const char *open, *close;
    int strict;
};

enum { CALL_FORMS = 35 };
extern const struct call_form cb_call_forms[CALL_FORMS];
extern const struct call_form cb_call_alone; /* a reply that begins with a call; opened by "" */
extern const struct call_form cb_call_given; /* see cb_calls_named() */

enum calls_status {
    CALLS_MORE, /* wants more text */
    CALLS_END,  /* the calls have ended; what follows is text */
    CALLS_NONE  /* s[n] is no call: nothing was handed out or taken */
};

struct calls {
    const struct call_sink *sink;
    const json_t *tools; /* in the OpenAI form */
    const struct call_form *form;
    int stage, n, in_list;
    int wrapped; /* the list is a member of an object */
    int lines;   /* calls of the kind f(x=1), one a line */
    struct json_scan scan;
    int depth; /* objects that hold the arguments */
    /* parameters in tags: */
    int n_param, streams; /* streams: the value is a string, which is handed out as it comes */
    int trims;            /* a line end after the tag and before the next is none of the value's */
    unsigned types;       /* that the tool's schema allows */
    char name[CALL_NAME];
    size_t seen; /* bytes that told too little */
};

struct call_text {
    const char *s;
    size_t n, i;
    int ended;   /* enum text_end */
    int partial; /* the text ends within something that was looked for */
};

enum { CALL_HEAD, CALL_GIVEN, CALL_ARGS, CALL_RAW, CALL_REST, CALL_PARAMS, CALL_VALUE, CALL_GAP };

int cb_call_at(struct call_text *t, const char *mark);   /* 1: t stands before the mark */
int cb_call_skip(struct call_text *t, const char *mark); /* the same, and goes after it */
int cb_call_skip_any(struct call_text *t, const char *const *marks, int n);
void cb_call_blanks(struct call_text *t);
/* A mark that may stand after single calls */
int cb_call_skip_after(struct call_text *t);
int cb_call_is_name(char c);
/* Where the mark begins at or after t->i, or t->n */
size_t cb_call_find(const struct call_text *t, const char *mark);
int cb_call_known(const struct calls *c, const char *name);
int cb_call_form_names(const struct call_form *f); /* 1: its mark is followed by a name */
const json_t *cb_call_properties(const struct calls *c, const char *name);
int cb_call_closes(const struct calls *c, struct call_text *t); /* 1: a mark closes calls here */
void cb_call_fix_name(const struct calls *c, char *name);
void cb_call_begin(struct calls *c, const char *name);
void cb_call_put(struct calls *c, const char *s);
void cb_call_end(struct calls *c);

enum calls_status cb_call_stage(struct calls *c, int to); /* returns CALLS_END: of the stage */
/* A call whose arguments s[n] are there, in any spelling of nothing or an object. 0: they are none
 */
int cb_call_whole(struct calls *c, const char *name, const char *s, size_t n);
/* t stands before the arguments. */
enum calls_status cb_call_arguments(struct calls *c, struct call_text *t, const char *name);
enum calls_status cb_call_start(struct calls *c, struct call_text *t);
/* Parameters in tags, after the head. */
enum calls_status cb_call_params(struct calls *c, struct call_text *t);
/* (x=1, ...) or {x:1}: a whole call, from its bracket on */
enum calls_status cb_call_python(struct calls *c, struct call_text *t, const char *name);
enum calls_status cb_call_bare_keys(struct calls *c, struct call_text *t, const char *name);

#endif
