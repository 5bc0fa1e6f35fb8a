/* SPDX-License-Identifier: MIT */
/* full.c - every token is kept and read: the baseline of all methods. */
#include <stdio.h>

#include "policy/policy.h"

static const struct method_opt opts[] = { { .name = NULL } };

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *lay)
{
    (void)lay;
    if (sh->selects)
        snprintf(p->note, sizeof p->note,
                 "policy full: the model was trained to read what its own selector names, and may "
                 "answer worse when it reads everything; policy own uses the selector");
    return 0;
}

const struct method cb_method_full = {
    .name = "full",
    .cite = "Vaswani et al., 2017, section 3.2.1",
    .brief = "keeps and reads every token",
    .opts = opts,
    .plan = plan_layers,
    .selected = 1,
};
