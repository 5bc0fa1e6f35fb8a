# What OpenCL and CUDA devices share; the kernels' texts are compiled by either, behind words that
# they share.
gpu_words = \
	backends/gpu/kernels/group.cl \
	backends/gpu/kernels/long_list.cl \
	backends/gpu/kernels/rows.cl \
	backends/gpu/kernels/split.cl
# of texts, where they include it
gpu_parts = \
	backends/gpu/kernels/as_halves.cl \
	backends/gpu/kernels/attend_few.cl \
	backends/gpu/kernels/attend_few_q8.cl \
	backends/gpu/kernels/codes.cl \
	backends/gpu/kernels/few_codes.cl \
	backends/gpu/kernels/cache.cl backends/gpu/kernels/prompt.cl \
	backends/gpu/kernels/prompt_rows.cl
gpu_kernels = \
	backends/gpu/kernels/attention.cl \
	backends/gpu/kernels/gemm.cl \
	backends/gpu/kernels/index.cl \
	backends/gpu/kernels/matmul.cl \
	backends/gpu/kernels/pages.cl \
	backends/gpu/kernels/peak.cl \
	backends/gpu/kernels/search.cl \
	backends/gpu/kernels/select.cl \
	backends/gpu/kernels/vector.cl
EXTRA_DIST += $(gpu_words) $(gpu_parts) $(gpu_kernels)

if HAVE_GPU
noinst_LTLIBRARIES += libgpu.la
libcore_la_LIBADD += libgpu.la
libgpu_la_CFLAGS = $(AM_CFLAGS)
libgpu_la_SOURCES = \
	backends/gpu/driver.h \
	backends/gpu/gpu.h \
	backends/gpu/gpu_ahead.c backends/gpu/gpu_ahead.h \
	backends/gpu/gpu_attention.c \
	backends/gpu/gpu_blocks.c backends/gpu/gpu_blocks.h \
	backends/gpu/gpu_boundary.c \
	backends/gpu/gpu_bounds.c \
	backends/gpu/gpu_cache.c backends/gpu/gpu_cache.h \
	backends/gpu/gpu_chosen.c backends/gpu/gpu_chosen.h \
	backends/gpu/gpu_constants.c \
	backends/gpu/gpu_device.c \
	backends/gpu/gpu_gemm.c backends/gpu/gpu_gemm.h \
	backends/gpu/gpu_heads.c \
	backends/gpu/gpu_matmul.c \
	backends/gpu/gpu_memory.c \
	backends/gpu/gpu_index.c backends/gpu/gpu_index.h \
	backends/gpu/gpu_index_blocks.c \
	backends/gpu/gpu_left.h \
	backends/gpu/gpu_note.h \
	backends/gpu/gpu_lists.c backends/gpu/gpu_lists.h \
	backends/gpu/gpu_lookup.c backends/gpu/gpu_lookup.h \
	backends/gpu/gpu_map.c backends/gpu/gpu_map.h \
	backends/gpu/gpu_mirror.c backends/gpu/gpu_mirror.h \
	backends/gpu/gpu_new_rows.c \
	backends/gpu/gpu_pack.c backends/gpu/gpu_pack.h \
	backends/gpu/gpu_pages.c backends/gpu/gpu_pages.h \
	backends/gpu/gpu_peak.c \
	backends/gpu/gpu_program.c \
	backends/gpu/gpu_recurrence.c \
	backends/gpu/gpu_runs.c backends/gpu/gpu_runs.h \
	backends/gpu/gpu_share.c backends/gpu/gpu_share.h \
	backends/gpu/gpu_sketch.c \
	backends/gpu/gpu_split.c backends/gpu/gpu_split.h \
	backends/gpu/gpu_stream.c backends/gpu/gpu_stream.h \
	backends/gpu/gpu_vector.c
endif
