/* SPDX-License-Identifier: MIT */
/* gpu_note.h - what a device tells the user, each once: the bits of struct gpu's `said`. */
#ifndef GPU_NOTE_H
#define GPU_NOTE_H

enum gpu_note {
    NOTE_WEIGHTS,
    NOTE_ATTENTION,
    NOTE_TYPES,
    NOTE_SKETCHES,
    NOTE_PAGES,
    NOTE_INDEX,
    NOTE_RECURRENCE,
    NOTE_CHOOSING_ROWS
};

#endif
