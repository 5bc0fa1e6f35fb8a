# OpenCL devices; the kernels' texts are compiled when one opens.
cl_texts = backends/opencl/prelude.cl $(gpu_words) $(gpu_kernels)
EXTRA_DIST += backends/opencl/prelude.cl

if HAVE_OPENCL
noinst_LTLIBRARIES += libopencl.la
libcore_la_LIBADD += libopencl.la $(OPENCL_LIBS)
libopencl_la_CFLAGS = $(AM_CFLAGS) $(OPENCL_CFLAGS)
libopencl_la_SOURCES = \
	backends/opencl/cl.h \
	backends/opencl/cl_driver.c \
	backends/opencl/cl_program.c \
	backends/opencl/cl_status.c
nodist_libopencl_la_SOURCES = backends/opencl/cl_texts.h

# Each text as a string
backends/opencl/cl_texts.h: $(cl_texts)
	$(AM_V_GEN)$(MKDIR_P) backends/opencl && for f in $^; do \
		echo "static const char cl_text_$$(basename $$f .cl)[] ="; \
		sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' $$f; echo '    ;'; \
	done > $@.tmp && mv $@.tmp $@
$(libopencl_la_OBJECTS): backends/opencl/cl_texts.h
BUILT_SOURCES += backends/opencl/cl_texts.h
CLEANFILES += backends/opencl/cl_texts.h
endif
