/* SPDX-License-Identifier: MIT */
/* draw_pictures.c - pictures as SVG, by the program's own writer, from a description in JSON.
 *
 * usage: bench/draw-pictures <PICTURES.json
 *
 * A list of {"file", "diagrams": [{"title", "x_name", "first" and "step", "curves":
 * [{"name", "y", "x"}]}]}, where the "x" that curves may have is on a logarithmic scale, or of
 * {"file", "title", "map": a list of numbers for each layer, "first": the first token}. null is a
 * gap. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/output/chart.h"

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? s : "";
}

static double number_of(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

/* A list of numbers; the caller frees. NULL: it is none, or memory ran out */
static double *numbers_of(const json_t *list, int *n)
{
    double *x = json_is_array(list) ? cb_calloc(json_array_size(list) + 1, sizeof *x) : NULL;
    const json_t *v;
    size_t i;

    *n = x ? (int)json_array_size(list) : 0;
    for (i = 0; x && i < (size_t)*n; i++) {
        v = json_array_get(list, i);
        x[i] = json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
    return x;
}

static int draw_map(const json_t *j)
{
    const json_t *rows = json_object_get(j, "map");
    const int n_layer = (int)json_array_size(rows);
    const int n = (int)json_array_size(json_array_get(rows, 0));
    double *all = cb_calloc((size_t)n_layer * (size_t)n + 1, sizeof *all);
    int rc = all && n ? CB_OK : cb_fail(CB_EARG, "map: no rows, or no memory");

    for (int i = 0; i < n_layer * n && !rc; i++)
        all[i] = json_number_value(
            json_array_get(json_array_get(rows, (size_t)(i / n)), (size_t)(i % n)));
    if (!rc)
        rc = cb_chart_map(text_of(j, "file"), text_of(j, "title"), all, n_layer, n,
                          (int)number_of(j, "first"), n, 64);
    free(all);
    return rc;
}

static int read_diagram(const json_t *j, struct diagram *d)
{
    const json_t *curves = json_object_get(j, "curves");
    struct curve *c = cb_calloc(json_array_size(curves) + 1, sizeof *c);

    *d = (struct diagram){ .title = text_of(j, "title"),
                           .x_name = text_of(j, "x_name"),
                           .first = number_of(j, "first"),
                           .step = number_of(j, "step"),
                           .curve = c };
    for (int i = 0; c && i < (int)json_array_size(curves); i++) {
        const json_t *one = json_array_get(curves, (size_t)i);
        int n;
        c[i] = (struct curve){ .name = text_of(one, "name"), .ink = i, .dashed = i >= 10 };
        c[i].y = numbers_of(json_object_get(one, "y"), &n);
        c[i].x = numbers_of(json_object_get(one, "x"), &c[i].n);
        d->by_powers |= c[i].x != NULL;
        d->n = n > d->n ? n : d->n;
        d->n_curve = i + 1;
        if (!c[i].y || (c[i].x ? c[i].n != n : i && n != d->n))
            return cb_fail(CB_EARG, "%s: curve %d: bad or unequal lists", d->title, i);
    }
    return c ? CB_OK : CB_ENOMEM;
}

static void free_diagram(struct diagram *d)
{
    for (int i = 0; i < d->n_curve; i++) {
        free((double *)(uintptr_t)d->curve[i].y); /* numbers_of() made it */
        free((double *)(uintptr_t)d->curve[i].x);
    }
    free((struct curve *)(uintptr_t)d->curve);
}

static int draw_diagrams(const json_t *j)
{
    const json_t *list = json_object_get(j, "diagrams");
    const int n = (int)json_array_size(list);
    struct diagram *d = cb_calloc((size_t)n + 1, sizeof *d);
    int rc = d ? CB_OK : CB_ENOMEM;

    for (int i = 0; i < n && !rc; i++)
        rc = read_diagram(json_array_get(list, (size_t)i), &d[i]);
    if (!rc)
        rc = cb_chart_diagrams(text_of(j, "file"), d, n);
    for (int i = 0; d && i < n; i++)
        free_diagram(&d[i]);
    free(d);
    return rc;
}

int main(void)
{
    json_error_t e;
    json_t *all = json_loadf(stdin, 0, &e), *j;
    size_t i;
    int rc = 0;

    if (!json_is_array(all)) {
        fprintf(stderr, "draw-pictures: no list of pictures: %s\n", e.text);
        return 1;
    }
    json_array_foreach(all, i, j) if (!rc)
    {
        rc = json_object_get(j, "map") ? draw_map(j) : draw_diagrams(j);
        if (rc)
            fprintf(stderr, "draw-pictures: %s: %s\n", text_of(j, "file"), cb_error());
    }
    json_decref(all);
    return rc != 0;
}
