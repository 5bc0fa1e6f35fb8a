/* SPDX-License-Identifier: MIT */
/* tiles.h - the tier amx in tests: with the machine's tiles where it has them, else, or with
 * CTXBANK_TEST_TILES=model, with a model of them in C (tile_model.h). */
#ifndef TILES_H
#define TILES_H

/* 1: cb_cpu_features() has the tiles, as far as the machine has what else the tier needs.
 * CTXBANK_TEST_ISA=amx does the same for a whole program. */
void cb_tiles_show(int show);
int cb_tiles_shown(void);

enum tiles_fault { TILES_SOUND, TILES_REFUSED, TILES_WRONG, TILES_WRONG_BATCH };
/* From now on the system refuses tiles, or every 1000th product, or product of a batch, is wrong in
 * its last bit. */
void cb_tiles_fail(enum tiles_fault f);
int cb_tiles_tried(void); /* calls of kernels with tiles so far */

#endif
