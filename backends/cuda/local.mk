# CUDA devices. nvcc compiles the kernels' texts when ctxbank is built; the driver is loaded when a
# device is wanted.
cuda_images = \
	backends/cuda/attention_64.fatbin \
	backends/cuda/attention_128.fatbin \
	backends/cuda/attention_256.fatbin \
	backends/cuda/attention_576.fatbin \
	backends/cuda/gemm.fatbin \
	backends/cuda/index.fatbin \
	backends/cuda/matmul.fatbin \
	backends/cuda/pages.fatbin \
	backends/cuda/peak.fatbin \
	backends/cuda/search.fatbin \
	backends/cuda/select.fatbin \
	backends/cuda/vector.fatbin
EXTRA_DIST += backends/cuda/prelude.cu backends/cuda/mma_sync.cuh

if HAVE_CUDA
noinst_LTLIBRARIES += libcuda_device.la
libcore_la_LIBADD += libcuda_device.la
libcuda_device_la_CFLAGS = $(AM_CFLAGS)
libcuda_device_la_SOURCES = \
	backends/cuda/cuda_api.c backends/cuda/cuda_api.h \
	backends/cuda/cuda_dev.h \
	backends/cuda/cuda_driver.c \
	backends/cuda/cuda_images.c \
	backends/cuda/cuda_program.c
nodist_libcuda_device_la_SOURCES = backends/cuda/cuda_sums.h
$(libcuda_device_la_OBJECTS): backends/cuda/cuda_sums.h
BUILT_SOURCES += backends/cuda/cuda_sums.h
backends/cuda/cuda_sums.h: $(cuda_images)
	$(AM_V_GEN)echo "__asm__(\"/* $$(cat $^ | cksum) */\");" >$@
CLEANFILES += $(cuda_images) backends/cuda/cuda_sums.h

cuda_prelude = $(srcdir)/backends/cuda/prelude.cu
cuda_kernels = $(srcdir)/backends/gpu/kernels
cuda_words = $(cuda_prelude) $(srcdir)/backends/cuda/mma_sync.cuh $(cuda_kernels)/group.cl \
	$(cuda_kernels)/long_list.cl $(cuda_kernels)/rows.cl $(cuda_kernels)/split.cl
cuda_attention = $(cuda_words) $(cuda_kernels)/attention.cl $(cuda_kernels)/prompt.cl \
	$(cuda_kernels)/prompt_rows.cl \
	$(cuda_kernels)/attend_few.cl $(cuda_kernels)/attend_few_q8.cl
cuda_matmul = $(cuda_words) $(cuda_kernels)/matmul.cl $(cuda_kernels)/codes.cl \
	$(cuda_kernels)/as_halves.cl $(cuda_kernels)/few_codes.cl
cuda_compile = $(AM_V_GEN)$(MKDIR_P) backends/cuda && \
	$(NVCC) $(NVCC_FLAGS) -fatbin -x cu -I$(srcdir)/backends/cuda -include $(cuda_prelude) \
	-include $(cuda_kernels)/group.cl -include $(cuda_kernels)/long_list.cl \
	-include $(cuda_kernels)/rows.cl \
	-include $(cuda_kernels)/split.cl -o $@
backends/cuda/attention_64.fatbin: $(cuda_attention)
	$(cuda_compile) -DMAX_HD=64 $(cuda_kernels)/attention.cl
backends/cuda/attention_128.fatbin: $(cuda_attention)
	$(cuda_compile) -DMAX_HD=128 $(cuda_kernels)/attention.cl
backends/cuda/attention_256.fatbin: $(cuda_attention)
	$(cuda_compile) -DMAX_HD=256 $(cuda_kernels)/attention.cl
backends/cuda/attention_576.fatbin: $(cuda_attention)
	$(cuda_compile) -DMAX_HD=576 $(cuda_kernels)/attention.cl
backends/cuda/gemm.fatbin: $(cuda_words) $(cuda_kernels)/gemm.cl
	$(cuda_compile) $(cuda_kernels)/gemm.cl
backends/cuda/index.fatbin: $(cuda_words) $(cuda_kernels)/index.cl
	$(cuda_compile) $(cuda_kernels)/index.cl
backends/cuda/matmul.fatbin: $(cuda_matmul)
	$(cuda_compile) $(cuda_kernels)/matmul.cl
backends/cuda/pages.fatbin: $(cuda_words) $(cuda_kernels)/pages.cl
	$(cuda_compile) $(cuda_kernels)/pages.cl
backends/cuda/peak.fatbin: $(cuda_words) $(cuda_kernels)/peak.cl
	$(cuda_compile) $(cuda_kernels)/peak.cl
backends/cuda/search.fatbin: $(cuda_words) $(cuda_kernels)/search.cl
	$(cuda_compile) $(cuda_kernels)/search.cl
backends/cuda/select.fatbin: $(cuda_words) $(cuda_kernels)/select.cl $(cuda_kernels)/cache.cl
	$(cuda_compile) $(cuda_kernels)/select.cl
backends/cuda/vector.fatbin: $(cuda_words) $(cuda_kernels)/vector.cl
	$(cuda_compile) $(cuda_kernels)/vector.cl
endif
