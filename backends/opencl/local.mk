# An OpenCL device; its kernels' texts are compiled when it opens.
cl_kernels = \
	backends/opencl/kernels/prelude.cl \
	backends/opencl/kernels/attention.cl \
	backends/opencl/kernels/matmul.cl \
	backends/opencl/kernels/select.cl \
	backends/opencl/kernels/vector.cl
EXTRA_DIST += $(cl_kernels)

if HAVE_OPENCL
noinst_LTLIBRARIES += libopencl.la
libcore_la_LIBADD += libopencl.la $(OPENCL_LIBS)
libopencl_la_CFLAGS = $(AM_CFLAGS) $(OPENCL_CFLAGS)
libopencl_la_SOURCES = \
	backends/opencl/cl.h \
	backends/opencl/cl_attention.c \
	backends/opencl/cl_boundary.c \
	backends/opencl/cl_device.c \
	backends/opencl/cl_matmul.c \
	backends/opencl/cl_memory.c \
	backends/opencl/cl_mirror.c backends/opencl/cl_mirror.h \
	backends/opencl/cl_program.c \
	backends/opencl/cl_runs.c backends/opencl/cl_runs.h \
	backends/opencl/cl_vector.c
nodist_libopencl_la_SOURCES = backends/opencl/cl_texts.h

# Each text as a string
backends/opencl/cl_texts.h: $(cl_kernels)
	$(AM_V_GEN)$(MKDIR_P) backends/opencl && for f in $^; do \
		echo "static const char cl_text_$$(basename $$f .cl)[] ="; \
		sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' $$f; echo '    ;'; \
	done > $@.tmp && mv $@.tmp $@
BUILT_SOURCES += backends/opencl/cl_texts.h
CLEANFILES += backends/opencl/cl_texts.h
endif
