/* SPDX-License-Identifier: MIT */
/* gpu_pages.h - how the best of many pages are chosen (pages.cl). */
#ifndef GPU_PAGES_H
#define GPU_PAGES_H

#include "gpu.h"

/* As struct pages in pages.cl; the addresses of the mirror's pages follow where these are scored.
 */
struct gpu_pages {
    int32_t n_page, n_block, first, shift, bytes;
    int32_t hd, group, per, mean;
    int32_t page, lo, k, before, after;
};

struct gpu_program *cb_gpu_pages_program(struct gpu *g); /* NULL: it does not compile */
/* The lists that struct gpu_pages `of` describes, by score[n_list][n_page] -> found[n_list], each
 * after its number, all on the device. cb_gpu_pick_bytes: of work space for it */
void cb_gpu_pick_pages(struct gpu *g, struct gpu_program *p, const void *of, const float *score,
                       int n_list, int n_page, int32_t *found);
size_t cb_gpu_pick_bytes(int n_list, int n_page);

#endif
