/* SPDX-License-Identifier: MIT */
/* cuda_images.c - what nvcc made of the kernels' texts: machine code of several generations of
 * devices, and PTX, which the driver compiles for newer ones. */
#include <stddef.h>

#include "backends/cuda/cuda_sums.h" /* tells a compiler cache that images have changed */
#include "cuda_dev.h"

/* The assembler reads the file, from the folder in which make runs. */
#define IMAGE(name)                                                                                \
    __asm__(".section .rodata\n"                                                                   \
            ".balign 64\n"                                                                         \
            ".globl cb_cuda_" #name "\n"                                                           \
            ".hidden cb_cuda_" #name "\n"                                                          \
            "cb_cuda_" #name ":\n"                                                                 \
            ".incbin \"backends/cuda/" #name ".fatbin\"\n"                                         \
            ".previous\n");                                                                        \
    extern const unsigned char cb_cuda_##name[] __attribute__((visibility("hidden")))

IMAGE(matmul);
IMAGE(gemm);
IMAGE(vector);
IMAGE(select);
IMAGE(search);
IMAGE(pages);
IMAGE(index);
IMAGE(peak);
IMAGE(attention_64);
IMAGE(attention_128);
IMAGE(attention_256);
IMAGE(attention_576);

static const struct {
    enum gpu_text text;
    int max_hd; /* 0: any */
    const unsigned char *image;
} images[] = {
    { GPU_MATMUL, 0, cb_cuda_matmul },
    { GPU_GEMM, 0, cb_cuda_gemm },
    { GPU_VECTOR, 0, cb_cuda_vector },
    { GPU_SELECT, 0, cb_cuda_select },
    { GPU_SEARCH, 0, cb_cuda_search },
    { GPU_PAGES, 0, cb_cuda_pages },
    { GPU_INDEX, 0, cb_cuda_index },
    { GPU_PEAK, 0, cb_cuda_peak },
    { GPU_ATTENTION, 64, cb_cuda_attention_64 },
    { GPU_ATTENTION, 128, cb_cuda_attention_128 },
    { GPU_ATTENTION, 256, cb_cuda_attention_256 },
    { GPU_ATTENTION, KV_MAX_HD, cb_cuda_attention_576 },
};

const void *cb_cuda_image(enum gpu_text text, int hd)
{
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        if (images[i].text == text && (!images[i].max_hd || hd <= images[i].max_hd))
            return images[i].image;
    return NULL;
}
