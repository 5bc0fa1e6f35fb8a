/* SPDX-License-Identifier: MIT */
/* methods_doc.c - the manual's sections on policies, prefill methods, settings and what goes
 * together, out of their tables. */
#include "methods_doc.h"

#include <string.h>

#include "base/number.h"
#include "cli/options/matrix.h"
#include "device/device.h"
#include "eval/metric.h"
#include "opts_man.h"
#include "policy/policy.h"

static void default_of(const struct cb_option_info *p, char *buf, size_t cap)
{
    const char *at = p->choices;
    char def[32], min[32], max[32];

    buf[0] = 0;
    if (p->type == CB_OPTION_NUMBER || p->type == CB_OPTION_INTEGER) {
        snprintf(buf, cap, "default %s; %s to %s%s%s", cb_number_text(p->def, def),
                 cb_number_text(p->min, min), cb_number_text(p->max, max), *at ? ", or " : "", at);
    } else if (p->type == CB_OPTION_FLAG) {
        snprintf(buf, cap, "0 or 1; default %g", p->def);
    } else if (p->type == CB_OPTION_CHOICE) {
        for (int i = (int)p->def; i > 0; i--)
            at += strcspn(at, " ") + 1;
        snprintf(buf, cap, "one of %s; default %.*s", p->choices, (int)strcspn(at, " "), at);
    }
}

static void option(const struct cb_option_info *p, FILE *f)
{
    static const char *const operand[] = {
        [CB_OPTION_NUMBER] = "number", [CB_OPTION_INTEGER] = "integer", [CB_OPTION_FLAG] = "0 or 1",
        [CB_OPTION_CHOICE] = "choice", [CB_OPTION_LIST] = "layers",     [CB_OPTION_TEXT] = "file",
    };
    const int text = p->type == CB_OPTION_LIST || p->type == CB_OPTION_TEXT;
    char limits[256];

    fputs(".It Cm ", f);
    cb_man_text(p->name, f);
    fprintf(f, "= Ns Ar %s\n", *p->unit && !text && *p->unit != '%' ? p->unit : operand[p->type]);
    cb_man_text(p->text, f);
    default_of(p, limits, sizeof limits);
    if (*limits) {
        fputs("\n(", f);
        cb_man_text(limits, f);
        fputc(')', f);
    }
    fputs(".\n", f);
}

static void methods(int (*at)(int i, struct cb_method_info *out),
                    int (*option_at)(int i, int j, struct cb_option_info *out), FILE *f)
{
    struct cb_method_info m;
    struct cb_option_info p;

    for (int i = 0; !at(i, &m); i++) {
        fprintf(f, ".Ss %s\n", m.name);
        cb_man_text(m.text, f);
        fputs(".\n", f);
        if (*m.paper) {
            cb_man_text(m.paper, f);
            fputs(".\n", f);
        }
        for (int j = 0; !option_at(i, j, &p); j++) {
            if (!j)
                fputs(".Bl -tag -width Ds\n", f);
            option(&p, f);
        }
        if (!option_at(i, 0, &p))
            fputs(".El\n", f);
    }
}

static void settings(FILE *f)
{
    const struct paper_setting *x, *last = NULL;

    fputs(".Bl -tag -width Ds\n", f);
    for (int i = 0; (x = cb_paper_setting_at(i)); last = x, i++) {
        if (!last || strcmp(last->name, x->name)) {
            fputs(".It Cm ", f);
            cb_man_text(x->name, f);
        }
        fputs(last && !strcmp(last->name, x->name) ? ".br\n" : "\n", f);
        cb_man_text(x->method, f);
        fputc(':', f);
        cb_man_text(x->options, f);
        fputc('\n', f);
    }
    fputs(".El\n", f);
}

/* A table: a row a policy, a column a form of prefill; the reasons below it */
static void matrix(FILE *f)
{
    const char *said[MATRIX_FORMS] = { NULL };
    struct matrix_row x;
    int n_said = 0;

    fputs(".Bl -column \"streamingllm:prefill=windowed\"", f);
    for (int i = 0; cb_prompt_method_at(i); i++)
        fprintf(f, " \"%s\"", cb_prompt_method_at(i)->name);
    fputs("\n.It Sy policy", f);
    for (int i = 0; cb_prompt_method_at(i); i++)
        fprintf(f, " Ta %s", cb_prompt_method_at(i)->name);
    for (int i = 0, j = 0; cb_matrix_next(&i, &j, &x);) {
        fputs("\n.It ", f);
        cb_man_text(x.policy, f);
        for (int p = 0; cb_prompt_method_at(p); p++) {
            int k = 0;
            while (x.why[p] && k < n_said && strcmp(said[k], x.why[p]) != 0)
                k++;
            if (x.why[p] && k == n_said && k < MATRIX_FORMS)
                said[n_said++] = x.why[p];
            if (x.why[p])
                fprintf(f, " Ta no (%d)", k + 1);
            else
                fputs(" Ta yes", f);
        }
    }
    fputs("\n.El\n", f);
    for (int k = 0; k < n_said; k++) {
        fprintf(f, ".Pp\n(%d) ", k + 1);
        cb_man_text(said[k], f);
        fputs(".\n", f);
    }
}

static void metrics(FILE *f)
{
    const struct metric *m;

    fputs(".Bl -tag -width classification\n", f);
    for (int i = 0; (m = cb_metric_at(i)); i++) {
        fprintf(f, ".It Cm %s\n", m->name);
        cb_man_text(m->text, f);
        fputs(".\n", f);
    }
    fputs(".El\n", f);
}

/* Types of keys and values, by the bits of a number */
static void types(FILE *f)
{
    fputs(".Bl -column \"q8_0\" \"bits of a number\"\n.It Sy type Ta Sy bits of a number\n", f);
    for (int i = 0; i < KV_TYPE_COUNT; i++)
        fprintf(f, ".It Cm %s Ta %.3g\n", cb_kv_type[i].name,
                8.0 * cb_kv_type[i].block_bytes / cb_kv_type[i].block);
    fputs(".It Cm kivi4 , kivi2 Ta 4 and 2, and two numbers for each group\n"
          ".It Cm planes Ta 8.25, the sketch included\n.El\n",
          f);
}

int cb_methods_man(const char *what, FILE *f)
{
    if (!strcmp(what, "policies"))
        methods(cb_policy_at, cb_policy_option_at, f);
    else if (!strcmp(what, "prefills"))
        methods(cb_prefill_at, cb_prefill_option_at, f);
    else if (!strcmp(what, "matrix"))
        matrix(f);
    else if (!strcmp(what, "settings"))
        settings(f);
    else if (!strcmp(what, "metrics"))
        metrics(f);
    else if (!strcmp(what, "types"))
        types(f);
    else
        return 0;
    return 1;
}
