/* SPDX-License-Identifier: MIT */
/* own_layers.c - the plan of a rank that has some of the model's layers. */
#include <string.h>

#include "policy.h"

const char *cb_policy_keep_own(struct policy *p, struct layer_plan *plan)
{
    const struct own_layers *own = &p->sh.own;

    if (!own->n)
        return NULL;
    if (p->m->compact || p->m->observe)
        return "it drops tokens by what it knows of all layers, which several "
               "ranks have; not yet";
    memmove(plan, plan + own->first, (size_t)own->n * sizeof *plan);
    for (int l = 0; l < own->n; l++) {
        const int reads = plan[l].reads - own->first;
        if (plan[l].cross.from || plan[l].narrows || plan[l].late ||
            (plan[l].reads >= 0 && (reads < 0 || reads >= own->n)))
            return "a layer reads what one of another rank has chosen";
        plan[l].reads = plan[l].reads < 0 ? -1 : reads;
    }
    p->sh.n_layer = own->n;
    p->sh.at = own->at;
    p->sh.n_model_layer = own->n_model_layer;
    return NULL;
}
