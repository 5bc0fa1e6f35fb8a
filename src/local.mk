libcore_la_SOURCES += \
	include/ctxbank.h \
	src/backend.c src/backend.h \
	src/dtype.c src/dtype.h \
	src/dtype_k.c src/dtype_k.h \
	src/err.c src/err.h \
	src/gguf.h \
	src/par_omp.c src/par.h \
	src/template.h \
	src/tok.h
