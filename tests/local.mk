# A test that hangs ends after ten minutes; a slow machine is no failure.
AM_TESTS_ENVIRONMENT = CK_DEFAULT_TIMEOUT=600; export CK_DEFAULT_TIMEOUT;

# One program an area; each links the library's inside and the check runner. Those that take longest
# begin first.
if HAVE_CHECK
check_programs = \
	tests/methods/check_kvpress \
	tests/ops/check_policies_cuda \
	tests/ops/check_set_cuda \
	tests/ops/check_policies_opencl \
	tests/ops/check_matmul \
	tests/ops/check_bytes_cuda \
	tests/unit/check_continuation \
	tests/ops/check_attn \
	tests/unit/check_saved_bank \
	tests/unit/check_damaged_bank \
	tests/unit/check_bank_in_use \
	tests/unit/check_bank_faults \
	tests/ops/check_blocks \
	tests/ops/check_sketch \
	tests/unit/check_bank_dir \
	tests/ops/check_index \
	tests/methods/check_sieve \
	tests/ops/check_kivi \
	tests/methods/check_mask \
	tests/ops/check_planes \
	tests/fuzz/check_hostile \
	tests/unit/check_families \
	tests/unit/check_variants \
	tests/unit/check_fork \
	tests/methods/check_matrix \
	tests/unit/check_sample \
	tests/methods/check_policy \
	tests/unit/check_quantize \
	tests/unit/check_batch \
	tests/unit/check_token_experts \
	tests/methods/check_compose \
	tests/unit/check_api \
	tests/unit/check_calibrate \
	tests/unit/check_coverage \
	tests/unit/check_trials \
	tests/unit/check_presets \
	tests/unit/check_codecs \
	tests/unit/check_conversation \
	tests/unit/check_cpus \
	tests/unit/check_rank_wait \
	tests/unit/check_eval \
	tests/unit/check_adopted_rows \
	tests/unit/check_shared_prefill \
	tests/unit/check_far_memory \
	tests/unit/check_generation \
	tests/unit/check_speculation \
	tests/unit/check_draft_windows \
	tests/unit/check_gguf \
	tests/unit/check_grammar \
	tests/unit/check_constraint \
	tests/unit/check_schemas \
	tests/ops/check_attn_opencl \
	tests/methods/check_methods \
	tests/unit/check_metric \
	tests/ops/check_ops \
	tests/ops/check_recurrence \
	tests/ops/check_attn_cuda \
	tests/ops/check_bytes_opencl \
	tests/ops/check_codes_cuda \
	tests/ops/check_codes_opencl \
	tests/ops/check_cuda \
	tests/ops/check_cuda_driver \
	tests/ops/check_heads_cuda \
	tests/ops/check_kivi_cuda \
	tests/ops/check_lists_cuda \
	tests/ops/check_selectors_cuda \
	tests/ops/check_selectors_opencl \
	tests/ops/check_ops_cuda \
	tests/ops/check_keys_cuda \
	tests/ops/check_pages_cuda \
	tests/ops/check_prompts_cuda \
	tests/ops/check_recurrence_cuda \
	tests/ops/check_opencl \
	tests/ops/check_ops_opencl \
	tests/ops/check_heads_opencl \
	tests/ops/check_keys_opencl \
	tests/ops/check_pages_opencl \
	tests/ops/check_recurrence_opencl \
	tests/ops/check_shared_cuda \
	tests/ops/check_sketch_cuda \
	tests/ops/check_token_cuda \
	tests/ops/check_set_opencl \
	tests/ops/check_sketch_opencl \
	tests/methods/check_infinigen \
	tests/methods/check_infllm \
	tests/methods/check_shared_kv \
	tests/methods/check_block_prefill \
	tests/methods/check_sparse_prefill \
	tests/unit/check_model \
	tests/unit/check_adapters \
	tests/unit/check_embedding \
	tests/unit/check_unread_rows \
	tests/unit/check_block_selectors \
	tests/unit/check_hybrids \
	tests/unit/check_index_choice \
	tests/unit/check_mtp \
	tests/unit/check_assistant \
	tests/unit/check_saved_head \
	tests/unit/check_parting \
	tests/unit/check_checkpoints \
	tests/unit/check_states \
	tests/unit/check_latent \
	tests/unit/check_expanded \
	tests/unit/check_selected_pages \
	tests/unit/check_selector \
	tests/ops/check_kivi_opencl \
	tests/methods/check_kivi_sessions \
	tests/methods/check_omnikv \
	tests/methods/check_own_slots \
	tests/methods/check_readers \
	tests/methods/check_reads \
	tests/methods/check_turns \
	tests/methods/check_pod \
	tests/unit/check_base \
	tests/unit/check_leval \
	tests/unit/check_limits \
	tests/unit/check_par \
	tests/unit/check_affinity \
	tests/unit/check_placement \
	tests/unit/check_reply \
	tests/unit/check_company \
	tests/unit/check_patience \
	tests/unit/check_prefix_store \
	tests/unit/check_scheduler \
	tests/unit/check_head_prune \
	tests/ops/check_prefetch \
	tests/ops/check_prepack \
	tests/ops/check_shares \
	tests/ops/check_tiers \
	tests/ops/check_work_space \
	tests/unit/check_store \
	tests/unit/check_store_pair \
	tests/unit/check_chat \
	tests/unit/check_jinja \
	tests/unit/check_pre \
	tests/unit/check_template \
	tests/unit/check_thread_choice \
	tests/unit/check_thread_counts \
	tests/unit/check_threads \
	tests/unit/check_tok \
	tests/unit/check_whole_codes \
	tests/fuzz/check_grammar_fuzz \
	tests/fuzz/check_jinja_fuzz \
	tests/fuzz/check_tok_file \
	tests/fuzz/fuzz_bank \
	tests/fuzz/fuzz_gbnf \
	tests/fuzz/fuzz_gguf \
	tests/fuzz/fuzz_http \
	tests/fuzz/fuzz_imatrix \
	tests/fuzz/fuzz_jinja \
	tests/fuzz/fuzz_lora \
	tests/fuzz/fuzz_policy \
	tests/fuzz/fuzz_preset \
	tests/fuzz/fuzz_regex \
	tests/fuzz/fuzz_request \
	tests/fuzz/fuzz_schema \
	tests/fuzz/fuzz_tokens \
	tests/fuzz/fuzz_utf8

if HAVE_OPENCL
check_programs += tests/ops/check_opencl_driver
endif

if !THREADS_OPENMP
check_programs += tests/unit/check_team
endif

check_PROGRAMS += $(check_programs) tests/kit/make_tiny tests/faults/ctxbank
# scripts first: they wait for servers while others compute
TESTS += $(dist_check_SCRIPTS) $(check_programs)

# The same tests of ops on an OpenCL device; skipped where there is none
tests_ops_check_attn_opencl_SOURCES = tests/ops/check_attn.c tests/ops/against_ref.h
tests_ops_check_attn_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_attn_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_ops_opencl_SOURCES = tests/ops/check_ops.c tests/ops/against_ref.h
tests_ops_check_ops_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_ops_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_kivi_opencl_SOURCES = tests/ops/check_kivi.c
tests_ops_check_kivi_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_kivi_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_opencl_SOURCES = tests/ops/check_gpu.c tests/ops/against_ref.h
tests_ops_check_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_codes_opencl_SOURCES = tests/ops/check_gpu_codes.c tests/ops/against_ref.h
tests_ops_check_codes_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_codes_opencl_LDFLAGS = $(guard_ldflags)

tests_ops_check_bytes_opencl_SOURCES = tests/ops/check_gpu_bytes.c tests/ops/against_ref.h
tests_ops_check_bytes_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_bytes_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_heads_opencl_SOURCES = tests/ops/check_gpu_heads.c tests/ops/against_ref.h
tests_ops_check_heads_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_heads_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_keys_opencl_SOURCES = tests/ops/check_gpu_index.c tests/ops/against_ref.h
tests_ops_check_keys_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_keys_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_pages_opencl_SOURCES = tests/ops/check_gpu_pages.c tests/ops/against_ref.h
tests_ops_check_pages_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_pages_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_policies_opencl_SOURCES = tests/ops/check_gpu_policies.c
tests_ops_check_policies_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_policies_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_sketch_opencl_SOURCES = tests/ops/check_sketch.c tests/ops/against_ref.h
tests_ops_check_sketch_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_sketch_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_set_opencl_SOURCES = tests/ops/check_working_set.c tests/ops/against_ref.h
tests_ops_check_set_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_set_opencl_LDFLAGS = $(guard_ldflags)
tests_ops_check_selectors_opencl_SOURCES = tests/ops/check_gpu_selectors.c
tests_ops_check_selectors_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_selectors_opencl_LDFLAGS = $(check_ldflags)

tests_ops_check_recurrence_opencl_SOURCES = tests/ops/check_recurrence.c tests/ops/against_ref.h
tests_ops_check_recurrence_opencl_CFLAGS = -DON_OPENCL $(check_cflags)
tests_ops_check_recurrence_opencl_LDFLAGS = $(guard_ldflags)

# And on a CUDA device that pretends (tests/pretend), or, with CTXBANK_TEST_CUDA=real, on a real one
pretend_ldflags = -Wl,--wrap=dlopen,-u,__wrap_dlopen
cuda_ldflags = $(guard_ldflags) $(pretend_ldflags)
tests_ops_check_attn_cuda_SOURCES = tests/ops/check_attn.c tests/ops/against_ref.h
tests_ops_check_attn_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_attn_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_token_cuda_SOURCES = tests/ops/check_token.c tests/ops/against_ref.h
tests_ops_check_token_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_token_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_ops_cuda_SOURCES = tests/ops/check_ops.c tests/ops/against_ref.h
tests_ops_check_ops_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_ops_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_kivi_cuda_SOURCES = tests/ops/check_kivi.c
tests_ops_check_kivi_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_kivi_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_cuda_SOURCES = tests/ops/check_gpu.c tests/ops/against_ref.h
tests_ops_check_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_codes_cuda_SOURCES = tests/ops/check_gpu_codes.c tests/ops/against_ref.h
tests_ops_check_codes_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_codes_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_prompts_cuda_SOURCES = tests/ops/check_gpu_prompts.c tests/ops/against_ref.h
tests_ops_check_prompts_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_prompts_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_bytes_cuda_SOURCES = tests/ops/check_gpu_bytes.c tests/ops/against_ref.h
tests_ops_check_bytes_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_bytes_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_selectors_cuda_SOURCES = tests/ops/check_gpu_selectors.c
tests_ops_check_selectors_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_selectors_cuda_LDFLAGS = $(check_ldflags) $(pretend_ldflags)
tests_ops_check_lists_cuda_SOURCES = tests/ops/check_gpu_lists.c tests/ops/against_ref.h
tests_ops_check_lists_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_lists_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_heads_cuda_SOURCES = tests/ops/check_gpu_heads.c tests/ops/against_ref.h
tests_ops_check_heads_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_heads_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_keys_cuda_SOURCES = tests/ops/check_gpu_index.c tests/ops/against_ref.h
tests_ops_check_keys_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_keys_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_pages_cuda_SOURCES = tests/ops/check_gpu_pages.c tests/ops/against_ref.h
tests_ops_check_pages_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_pages_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_policies_cuda_SOURCES = tests/ops/check_gpu_policies.c
tests_ops_check_policies_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_policies_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_sketch_cuda_SOURCES = tests/ops/check_sketch.c tests/ops/against_ref.h
tests_ops_check_sketch_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_sketch_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_shared_cuda_SOURCES = tests/ops/check_shared_device.c
tests_ops_check_shared_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_shared_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_set_cuda_SOURCES = tests/ops/check_working_set.c tests/ops/against_ref.h
tests_ops_check_set_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_set_cuda_LDFLAGS = $(cuda_ldflags)
tests_ops_check_cuda_driver_SOURCES = tests/ops/check_driver.c tests/ops/driver_faults.h \
	tests/ops/cuda_faults.c tests/ops/against_ref.h
tests_ops_check_cuda_driver_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_cuda_driver_LDFLAGS = $(cuda_ldflags)

tests_ops_check_recurrence_cuda_SOURCES = tests/ops/check_recurrence.c tests/ops/against_ref.h
tests_ops_check_recurrence_cuda_CFLAGS = -DON_CUDA $(check_cflags)
tests_ops_check_recurrence_cuda_LDFLAGS = $(cuda_ldflags)

# OpenCL's calls go by way of tests/ops/opencl_faults.c, which counts them and lets them fail.
cl_calls = -Wl,--wrap=clGetPlatformIDs -Wl,--wrap=clCreateContext \
	-Wl,--wrap=clReleaseContext -Wl,--wrap=clCreateCommandQueueWithProperties \
	-Wl,--wrap=clReleaseCommandQueue -Wl,--wrap=clSVMAlloc -Wl,--wrap=clSVMFree \
	-Wl,--wrap=clCreateProgramWithSource -Wl,--wrap=clBuildProgram -Wl,--wrap=clReleaseProgram \
	-Wl,--wrap=clCreateKernel -Wl,--wrap=clReleaseKernel -Wl,--wrap=clSetKernelArg \
	-Wl,--wrap=clEnqueueSVMMemcpy -Wl,--wrap=clEnqueueNDRangeKernel \
	-Wl,--wrap=clEnqueueMarkerWithWaitList -Wl,--wrap=clEnqueueBarrierWithWaitList \
	-Wl,--wrap=clReleaseEvent -Wl,--wrap=clFlush -Wl,--wrap=clFinish
tests_ops_check_opencl_driver_SOURCES = tests/ops/check_driver.c tests/ops/driver_faults.h \
	tests/ops/opencl_faults.c tests/ops/against_ref.h
tests_ops_check_opencl_driver_CFLAGS = -DON_OPENCL $(check_cflags) $(OPENCL_CFLAGS)
tests_ops_check_opencl_driver_LDFLAGS = $(guard_ldflags) $(cl_calls)
tests_ops_check_opencl_driver_LDADD = $(check_ldadd) $(OPENCL_LIBS)

EXTRA_DIST += tests/pretend/cuda_fp16.h tests/pretend/mma_sync.cuh tests/pretend/pretend_cuda.cc
if HAVE_PRETEND_CUDA
pretend_sources = $(srcdir)/tests/pretend/pretend_cuda.cc $(srcdir)/tests/pretend/cuda_fp16.h \
	$(srcdir)/tests/pretend/mma_sync.cuh $(srcdir)/backends/cuda/prelude.cu
tests/pretend/libcuda.so.1: $(pretend_sources) $(gpu_words) $(gpu_parts) $(gpu_kernels)
	$(AM_V_GEN)$(MKDIR_P) tests/pretend && $(CXX) -std=c++17 -O2 -Wall -fPIC -shared \
		-fsanitize=alignment -fsanitize-undefined-trap-on-error \
		-fvisibility=hidden -Wl,-soname,libcuda.so.1 \
		-DPRETEND_IMAGES='"$(abs_builddir)/backends/cuda"' \
		-I$(srcdir)/tests/pretend -I$(srcdir)/backends -o $@ $(srcdir)/tests/pretend/pretend_cuda.cc
check_DATA += tests/pretend/libcuda.so.1
CLEANFILES += tests/pretend/libcuda.so.1
endif

# Calls that fail (tests/faults): a library that is loaded before all others, and the program with
# the calls built in, for sanitizers.
tests/faults/failing_calls.so: tests/faults/failing_calls.c
	$(AM_V_GEN)$(MKDIR_P) tests/faults && $(CC) -std=gnu11 -O1 -g -Wall -Wextra -shared -fPIC \
		-o $@ $(srcdir)/tests/faults/failing_calls.c
check_DATA += tests/faults/failing_calls.so
CLEANFILES += tests/faults/failing_calls.so
tests_faults_ctxbank_SOURCES = tests/faults/failing_calls.c
tests_faults_ctxbank_CPPFLAGS = $(AM_CPPFLAGS) -DFAULTS_WRAPPED
tests_faults_ctxbank_CFLAGS = $(AM_CFLAGS) -Wno-missing-prototypes
tests_faults_ctxbank_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=strdup \
	-Wl,--wrap=strndup,--wrap=open,--wrap=fopen,--wrap=fdopen,--wrap=opendir \
	-Wl,--wrap=memfd_create,--wrap=pipe2,--wrap=socket,--wrap=read,--wrap=pread \
	-Wl,--wrap=readdir,--wrap=getrandom,--wrap=write,--wrap=pwrite,--wrap=send \
	-Wl,--wrap=sendmsg,--wrap=fsync,--wrap=ftruncate,--wrap=rename,--wrap=linkat,--wrap=mmap \
	-Wl,--wrap=pthread_create,--wrap=fstat,--wrap=stat,--wrap=lseek,--wrap=realpath \
	-Wl,--wrap=fread,--wrap=fgets,--wrap=fwrite,--wrap=fflush,--wrap=fclose
tests_faults_ctxbank_LDADD = $(ctxbank_OBJECTS) $(ctxbank_LDADD)
tests_faults_ctxbank_DEPENDENCIES = $(ctxbank_OBJECTS) $(ctxbank_DEPENDENCIES)

check_ldadd = libtest.la libcore.la $(CHECK_LIBS) $(JANSSON_LIBS)
LDADD = $(check_ldadd)
# CTXBANK_TEST_ISA=avx2 hides better tiers from the tests (tests/kit/isa.c).
check_ldflags = $(AM_LDFLAGS) -Wl,--wrap=cb_cpu_features,-u,__wrap_cb_cpu_features $(tiles_wrap)
if ISA_AMX
# The tier amx with a model of its instructions (tests/kit/tiles.h)
tiles_wrap = -Wl,--wrap=cb_many_amx,--wrap=cb_peak_amx,--wrap=cb_cpu_permit_tiles
endif
# Work space and buffers between pages that nobody may touch (tests/kit/guard.h).
guard_ldflags = $(check_ldflags) -Wl,--wrap=cb_alloc_aligned -Wl,--wrap=free
# Calls that fail when a test wants them to (tests/kit/faults.h).
faults_ldflags = $(check_ldflags) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc \
	-Wl,--wrap=posix_memalign,--wrap=strdup,--wrap=open,--wrap=opendir,--wrap=pread \
	-Wl,--wrap=readdir,--wrap=write,--wrap=mmap,--wrap=getrandom
check_cflags = -I$(srcdir)/tests $(AM_CFLAGS) $(CHECK_CFLAGS)

# What tests share: files and models that they make.
check_LTLIBRARIES = libtest.la
if ISA_AMX
check_LTLIBRARIES += libtiles_model.la
libtest_la_LIBADD = libtiles_model.la
libtiles_model_la_SOURCES = $(cpu_amx_sources)
libtiles_model_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests -DTILE_OPS='"kit/tile_model.h"' \
	-Dcb_many_amx=cb_many_model -Dcb_peak_amx=cb_peak_model
libtiles_model_la_CFLAGS = $(cpu_avx512_cflags) -mavx512vnni
endif
libtest_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DPRETEND_CUDA_LIB='"$(abs_builddir)/tests/pretend/libcuda.so.1"'
libtest_la_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
libtest_la_SOURCES = \
	tests/kit/asleep.c tests/kit/asleep.h \
	tests/kit/blocks.c tests/kit/blocks.h \
	tests/kit/device_answer.c tests/kit/device_answer.h \
	tests/kit/drafted.c tests/kit/drafted.h \
	tests/kit/faults.c tests/kit/faults.h \
	tests/kit/folder.c tests/kit/folder.h \
	tests/kit/assisted.c tests/kit/assisted.h \
	tests/kit/headed.c tests/kit/headed.h \
	tests/kit/gguf_make.c tests/kit/gguf_make.h \
	tests/kit/guard.c tests/kit/guard.h \
	tests/kit/isa.c tests/kit/isa.h \
	tests/kit/found_slots.h \
	tests/kit/inside.h \
	tests/kit/item_warnings.c tests/kit/item_warnings.h \
	tests/kit/pretend.c \
	tests/kit/recipe.c tests/kit/recipe.h \
	tests/kit/resident.c tests/kit/resident.h \
	tests/kit/slow.c tests/kit/slow.h \
	tests/kit/suite.c tests/kit/suite.h \
	tests/kit/tiles.c tests/kit/tiles.h tests/kit/tile_model.h \
	tests/kit/tiny.c tests/kit/tiny.h \
	tests/kit/settings.c tests/kit/settings.h \
	tests/kit/toy.c tests/kit/toy.h \
	tests/kit/written.c tests/kit/written.h

tests_unit_check_limits_SOURCES = tests/unit/check_limits.c tests/unit/repeated.h
tests_unit_check_limits_CFLAGS = $(check_cflags)
tests_unit_check_limits_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc \
	-Wl,--wrap=posix_memalign,--wrap=strdup

tests_unit_check_base_SOURCES = tests/unit/check_base.c
tests_unit_check_base_CFLAGS = $(check_cflags)
tests_unit_check_base_LDFLAGS = $(check_ldflags)

tests_unit_check_api_SOURCES = tests/unit/check_api.c
tests_unit_check_api_CFLAGS = $(check_cflags)
tests_unit_check_api_LDFLAGS = $(check_ldflags)

tests_unit_check_presets_SOURCES = tests/unit/check_presets.c
tests_unit_check_presets_CFLAGS = $(check_cflags)
tests_unit_check_presets_LDFLAGS = $(check_ldflags)
tests_unit_check_calibrate_SOURCES = tests/unit/check_calibrate.c tests/unit/calibrated.h
tests_unit_check_calibrate_CFLAGS = $(check_cflags)
tests_unit_check_calibrate_LDFLAGS = $(check_ldflags)
tests_unit_check_calibrate_LDADD = libeval.la $(check_ldadd)
tests_unit_check_coverage_SOURCES = tests/unit/check_coverage.c tests/unit/calibrated.h
tests_unit_check_coverage_CFLAGS = $(check_cflags)
tests_unit_check_coverage_LDFLAGS = $(check_ldflags)
tests_unit_check_coverage_LDADD = libeval.la $(check_ldadd)
tests_unit_check_trials_SOURCES = tests/unit/check_trials.c tests/unit/calibrated.h
tests_unit_check_trials_CFLAGS = $(check_cflags)
tests_unit_check_trials_LDFLAGS = $(check_ldflags)
tests_unit_check_trials_LDADD = libeval.la $(check_ldadd)

tests_unit_check_grammar_SOURCES = tests/unit/check_grammar.c tests/unit/repeated.h
tests_unit_check_grammar_CFLAGS = $(check_cflags)
tests_unit_check_grammar_LDFLAGS = $(check_ldflags)

tests_fuzz_check_grammar_fuzz_SOURCES = tests/fuzz/check_grammar_fuzz.c
tests_fuzz_check_grammar_fuzz_CFLAGS = $(check_cflags)
tests_fuzz_check_grammar_fuzz_LDFLAGS = $(check_ldflags)

tests_unit_check_constraint_SOURCES = tests/unit/check_constraint.c
tests_unit_check_constraint_CFLAGS = $(check_cflags)
tests_unit_check_constraint_LDFLAGS = $(check_ldflags)

tests_unit_check_latent_SOURCES = tests/unit/check_latent.c
tests_unit_check_latent_CFLAGS = $(check_cflags)
tests_unit_check_latent_LDFLAGS = $(check_ldflags)
tests_unit_check_expanded_SOURCES = tests/unit/check_expanded.c
tests_unit_check_expanded_CFLAGS = $(check_cflags)
tests_unit_check_expanded_LDFLAGS = $(check_ldflags)
tests_unit_check_selected_pages_SOURCES = tests/unit/check_selected_pages.c
tests_unit_check_selected_pages_CFLAGS = $(check_cflags)
tests_unit_check_selected_pages_LDFLAGS = $(check_ldflags)
tests_unit_check_whole_codes_SOURCES = tests/unit/check_whole_codes.c
tests_unit_check_whole_codes_CFLAGS = $(check_cflags)
tests_unit_check_whole_codes_LDFLAGS = $(check_ldflags)
tests_unit_check_selector_SOURCES = tests/unit/check_selector.c
tests_unit_check_selector_CFLAGS = $(check_cflags)
tests_unit_check_selector_LDFLAGS = $(check_ldflags)
tests_unit_check_families_SOURCES = tests/unit/check_families.c
tests_unit_check_families_CFLAGS = $(check_cflags)
tests_unit_check_families_LDFLAGS = $(check_ldflags)
tests_unit_check_variants_SOURCES = tests/unit/check_variants.c
tests_unit_check_variants_CFLAGS = $(check_cflags)
tests_unit_check_variants_LDFLAGS = $(check_ldflags)

tests_unit_check_block_selectors_SOURCES = tests/unit/check_block_selectors.c
tests_unit_check_block_selectors_CFLAGS = $(check_cflags)
tests_unit_check_block_selectors_LDFLAGS = $(check_ldflags)

tests_unit_check_continuation_SOURCES = tests/unit/check_continuation.c
tests_unit_check_continuation_CFLAGS = $(check_cflags)
tests_unit_check_continuation_LDFLAGS = $(check_ldflags)

tests_unit_check_leval_SOURCES = tests/unit/check_leval.c
tests_unit_check_leval_CFLAGS = $(check_cflags)
tests_unit_check_leval_LDFLAGS = $(check_ldflags)
tests_unit_check_leval_LDADD = libeval.la $(check_ldadd)

tests_unit_check_eval_SOURCES = tests/unit/check_eval.c
tests_unit_check_eval_CFLAGS = $(check_cflags)
tests_unit_check_eval_LDFLAGS = $(check_ldflags)
tests_unit_check_eval_LDADD = libeval.la $(check_ldadd)

tests_unit_check_codecs_SOURCES = tests/unit/check_codecs.c tests/vectors/codecs.h \
	tests/vectors/kivi_published.h
tests_unit_check_codecs_CFLAGS = $(check_cflags)
tests_unit_check_codecs_LDFLAGS = $(check_ldflags)

tests_unit_check_thread_choice_SOURCES = tests/unit/check_thread_choice.c
tests_unit_check_thread_choice_CFLAGS = $(check_cflags)
tests_unit_check_thread_choice_LDFLAGS = $(check_ldflags)
tests_unit_check_thread_choice_LDADD = libeval.la $(check_ldadd)

tests_unit_check_thread_counts_SOURCES = tests/unit/check_thread_counts.c
tests_unit_check_thread_counts_CFLAGS = $(check_cflags)
tests_unit_check_thread_counts_LDFLAGS = $(check_ldflags)

tests_unit_check_rank_wait_SOURCES = tests/unit/check_rank_wait.c
tests_unit_check_rank_wait_CFLAGS = $(check_cflags)
tests_unit_check_rank_wait_LDFLAGS = $(check_ldflags)

tests_unit_check_cpus_SOURCES = tests/unit/check_cpus.c
tests_unit_check_cpus_CFLAGS = $(check_cflags)
tests_unit_check_cpus_LDFLAGS = $(check_ldflags)

tests_methods_check_kvpress_SOURCES = tests/methods/check_kvpress.c
tests_methods_check_kvpress_CFLAGS = $(check_cflags)
tests_methods_check_kvpress_LDFLAGS = $(check_ldflags)

tests_methods_check_block_prefill_SOURCES = tests/methods/check_block_prefill.c
tests_methods_check_block_prefill_CFLAGS = $(check_cflags)
tests_methods_check_block_prefill_LDFLAGS = $(check_ldflags)

tests_methods_check_sparse_prefill_SOURCES = tests/methods/check_sparse_prefill.c
tests_methods_check_sparse_prefill_CFLAGS = $(check_cflags)
tests_methods_check_sparse_prefill_LDFLAGS = $(check_ldflags)

tests_unit_check_adopted_rows_SOURCES = tests/unit/check_adopted_rows.c
tests_unit_check_adopted_rows_CFLAGS = $(check_cflags)
tests_unit_check_adopted_rows_LDFLAGS = $(check_ldflags)

tests_unit_check_shared_prefill_SOURCES = tests/unit/check_shared_prefill.c
tests_unit_check_shared_prefill_CFLAGS = $(check_cflags)
tests_unit_check_shared_prefill_LDFLAGS = $(check_ldflags)

tests_unit_check_far_memory_SOURCES = tests/unit/check_far_memory.c
tests_unit_check_far_memory_CFLAGS = $(check_cflags)
tests_unit_check_far_memory_LDFLAGS = $(check_ldflags)

tests_unit_check_generation_SOURCES = tests/unit/check_generation.c
tests_unit_check_generation_CFLAGS = $(check_cflags)
tests_unit_check_generation_LDFLAGS = $(check_ldflags)

tests_unit_check_draft_windows_SOURCES = tests/unit/check_draft_windows.c
tests_unit_check_draft_windows_CFLAGS = $(check_cflags)
tests_unit_check_draft_windows_LDFLAGS = $(check_ldflags)
tests_unit_check_speculation_SOURCES = tests/unit/check_speculation.c
tests_unit_check_speculation_CFLAGS = $(check_cflags)
tests_unit_check_speculation_LDFLAGS = $(check_ldflags)

tests_unit_check_fork_SOURCES = tests/unit/check_fork.c
tests_unit_check_fork_CFLAGS = $(check_cflags)
tests_unit_check_fork_LDFLAGS = $(check_ldflags)
tests_unit_check_bank_dir_SOURCES = tests/unit/check_bank_dir.c tests/unit/remembered.h
tests_unit_check_bank_dir_CFLAGS = $(check_cflags)
tests_unit_check_bank_dir_LDFLAGS = $(faults_ldflags)
tests_unit_check_bank_faults_SOURCES = tests/unit/check_bank_faults.c tests/unit/remembered.h
tests_unit_check_bank_faults_CFLAGS = $(check_cflags)
tests_unit_check_bank_faults_LDFLAGS = $(faults_ldflags)

tests_unit_check_saved_bank_SOURCES = tests/unit/check_saved_bank.c tests/unit/saved.h
tests_unit_check_saved_bank_CFLAGS = $(check_cflags)
tests_unit_check_saved_bank_LDFLAGS = $(check_ldflags)
tests_unit_check_damaged_bank_SOURCES = tests/unit/check_damaged_bank.c tests/unit/saved.h
tests_unit_check_damaged_bank_CFLAGS = $(check_cflags)
tests_unit_check_damaged_bank_LDFLAGS = $(check_ldflags)
tests_unit_check_bank_in_use_SOURCES = tests/unit/check_bank_in_use.c tests/unit/saved.h
tests_unit_check_bank_in_use_CFLAGS = $(check_cflags)
tests_unit_check_bank_in_use_LDFLAGS = $(check_ldflags)

tests_unit_check_gguf_SOURCES = tests/unit/check_gguf.c
tests_unit_check_gguf_CFLAGS = $(check_cflags)
tests_unit_check_gguf_LDFLAGS = $(check_ldflags)

tests_methods_check_mask_LDFLAGS = $(check_ldflags)
tests_methods_check_mask_SOURCES = tests/methods/check_mask.c tests/methods/formulas.c \
	tests/methods/d2o_formula.c \
	tests/methods/kvzip_formula.c \
	tests/methods/minicache_formula.c \
	tests/methods/pyramidinfer_formula.c \
	tests/methods/simlayerkv_formula.c \
	tests/methods/formulas.h
tests_methods_check_mask_CFLAGS = $(check_cflags) -I$(srcdir)/tests/methods

tests_methods_check_compose_SOURCES = tests/methods/check_compose.c
tests_methods_check_compose_CFLAGS = $(check_cflags)
tests_methods_check_compose_LDFLAGS = $(check_ldflags)

tests_unit_check_batch_SOURCES = tests/unit/check_batch.c
tests_unit_check_batch_CFLAGS = $(check_cflags)
tests_unit_check_batch_LDFLAGS = $(check_ldflags)

tests_unit_check_token_experts_SOURCES = tests/unit/check_token_experts.c
tests_unit_check_token_experts_CFLAGS = $(check_cflags)
tests_unit_check_token_experts_LDFLAGS = $(check_ldflags)

tests_methods_check_matrix_SOURCES = tests/methods/check_matrix.c
tests_methods_check_matrix_CFLAGS = $(check_cflags)
tests_methods_check_matrix_LDFLAGS = $(check_ldflags)

tests_methods_check_shared_kv_SOURCES = tests/methods/check_shared_kv.c
tests_methods_check_shared_kv_CFLAGS = $(check_cflags)
tests_methods_check_shared_kv_LDFLAGS = $(check_ldflags)

tests_methods_check_infinigen_SOURCES = tests/methods/check_infinigen.c
tests_methods_check_infinigen_CFLAGS = $(check_cflags)
tests_methods_check_infinigen_LDFLAGS = $(check_ldflags)

tests_methods_check_infllm_SOURCES = tests/methods/check_infllm.c
tests_methods_check_infllm_CFLAGS = $(check_cflags)
tests_methods_check_infllm_LDFLAGS = $(check_ldflags)

tests_methods_check_sieve_SOURCES = tests/methods/check_sieve.c
tests_methods_check_sieve_CFLAGS = $(check_cflags)
tests_methods_check_sieve_LDFLAGS = $(check_ldflags)

tests_ops_check_blocks_SOURCES = tests/ops/check_blocks.c tests/ops/against_ref.h
tests_ops_check_blocks_CFLAGS = $(check_cflags)
tests_ops_check_blocks_LDFLAGS = $(guard_ldflags)

tests_ops_check_planes_SOURCES = tests/ops/check_planes.c tests/ops/against_ref.h
tests_ops_check_planes_CFLAGS = $(check_cflags)
tests_ops_check_planes_LDFLAGS = $(guard_ldflags)

tests_ops_check_index_SOURCES = tests/ops/check_index.c tests/ops/against_ref.h
tests_ops_check_index_CFLAGS = $(check_cflags)
tests_ops_check_index_LDFLAGS = $(guard_ldflags)

tests_ops_check_sketch_SOURCES = tests/ops/check_sketch.c tests/ops/against_ref.h
tests_ops_check_sketch_CFLAGS = $(check_cflags)
tests_ops_check_sketch_LDFLAGS = $(guard_ldflags)

tests_ops_check_attn_SOURCES = tests/ops/check_attn.c tests/ops/against_ref.h
tests_ops_check_attn_CFLAGS = $(check_cflags)
tests_ops_check_attn_LDFLAGS = $(guard_ldflags)

tests_ops_check_matmul_SOURCES = tests/ops/check_matmul.c
tests_ops_check_matmul_CFLAGS = $(check_cflags)
tests_ops_check_matmul_LDFLAGS = $(guard_ldflags)
tests_fuzz_check_hostile_SOURCES = tests/fuzz/check_hostile.c
tests_fuzz_check_hostile_CFLAGS = $(check_cflags)
tests_fuzz_check_hostile_LDFLAGS = $(check_ldflags)

tests_methods_check_methods_SOURCES = tests/methods/check_methods.c tests/vectors/methods.h
tests_methods_check_methods_CFLAGS = $(check_cflags)
tests_methods_check_methods_LDFLAGS = $(check_ldflags)

tests_unit_check_metric_SOURCES = tests/unit/check_metric.c
tests_unit_check_metric_CFLAGS = $(check_cflags)
tests_unit_check_metric_LDFLAGS = $(check_ldflags)
tests_unit_check_metric_LDADD = libeval.la $(check_ldadd)

tests_ops_check_ops_SOURCES = tests/ops/check_ops.c tests/ops/against_ref.h
tests_ops_check_ops_CFLAGS = $(check_cflags)
tests_ops_check_ops_LDFLAGS = $(guard_ldflags)

tests_ops_check_recurrence_SOURCES = tests/ops/check_recurrence.c tests/ops/against_ref.h
tests_ops_check_recurrence_CFLAGS = $(check_cflags)
tests_ops_check_recurrence_LDFLAGS = $(guard_ldflags)

tests_unit_check_hybrids_SOURCES = tests/unit/check_hybrids.c
tests_unit_check_hybrids_CFLAGS = $(check_cflags)
tests_unit_check_hybrids_LDFLAGS = $(check_ldflags)
tests_unit_check_index_choice_SOURCES = tests/unit/check_index_choice.c
tests_unit_check_index_choice_CFLAGS = $(check_cflags)
tests_unit_check_index_choice_LDFLAGS = $(check_ldflags)
tests_unit_check_saved_head_SOURCES = tests/unit/check_saved_head.c
tests_unit_check_saved_head_CFLAGS = $(check_cflags)
tests_unit_check_saved_head_LDFLAGS = $(check_ldflags)

tests_unit_check_assistant_SOURCES = tests/unit/check_assistant.c
tests_unit_check_assistant_CFLAGS = $(check_cflags)
tests_unit_check_assistant_LDFLAGS = $(check_ldflags)
tests_unit_check_mtp_SOURCES = tests/unit/check_mtp.c
tests_unit_check_mtp_CFLAGS = $(check_cflags)
tests_unit_check_mtp_LDFLAGS = $(check_ldflags)
tests_unit_check_checkpoints_SOURCES = tests/unit/check_checkpoints.c tests/unit/hybrid.h
tests_unit_check_checkpoints_CFLAGS = $(check_cflags)
tests_unit_check_checkpoints_LDFLAGS = $(check_ldflags)
tests_unit_check_states_SOURCES = tests/unit/check_states.c tests/unit/hybrid.h
tests_unit_check_states_CFLAGS = $(check_cflags)
tests_unit_check_states_LDFLAGS = $(check_ldflags)

tests_unit_check_model_SOURCES = tests/unit/check_model.c
tests_unit_check_model_CFLAGS = $(check_cflags)
tests_unit_check_model_LDFLAGS = $(check_ldflags)

tests_unit_check_adapters_SOURCES = tests/unit/check_adapters.c
tests_unit_check_adapters_CFLAGS = $(check_cflags)
tests_unit_check_adapters_LDFLAGS = $(check_ldflags)

tests_unit_check_embedding_SOURCES = tests/unit/check_embedding.c
tests_unit_check_embedding_CFLAGS = $(check_cflags)
tests_unit_check_embedding_LDFLAGS = $(check_ldflags)

tests_unit_check_unread_rows_SOURCES = tests/unit/check_unread_rows.c
tests_unit_check_unread_rows_CFLAGS = $(check_cflags)
tests_unit_check_unread_rows_LDFLAGS = $(check_ldflags)

tests_methods_check_readers_SOURCES = tests/methods/check_readers.c
tests_methods_check_readers_CFLAGS = $(check_cflags)
tests_methods_check_readers_LDFLAGS = $(check_ldflags)
tests_methods_check_reads_SOURCES = tests/methods/check_reads.c
tests_methods_check_reads_CFLAGS = $(check_cflags)
tests_methods_check_reads_LDFLAGS = $(check_ldflags)

tests_methods_check_turns_SOURCES = tests/methods/check_turns.c
tests_methods_check_turns_CFLAGS = $(check_cflags)
tests_methods_check_turns_LDFLAGS = $(check_ldflags)

tests_methods_check_own_slots_SOURCES = tests/methods/check_own_slots.c
tests_methods_check_own_slots_CFLAGS = $(check_cflags)
tests_methods_check_own_slots_LDFLAGS = $(check_ldflags)

tests_methods_check_omnikv_SOURCES = tests/methods/check_omnikv.c tests/vectors/selection.h
tests_methods_check_omnikv_CFLAGS = $(check_cflags)
tests_methods_check_omnikv_LDFLAGS = $(check_ldflags)

tests_unit_check_placement_SOURCES = tests/unit/check_placement.c
tests_unit_check_placement_CFLAGS = $(check_cflags)
tests_unit_check_placement_LDFLAGS = $(check_ldflags) -Wl,--wrap=cb_par_for,--wrap=cb_slab_alloc

tests_unit_check_par_SOURCES = tests/unit/check_par.c
tests_unit_check_par_CFLAGS = $(check_cflags)
tests_unit_check_par_LDFLAGS = $(check_ldflags)

tests_unit_check_affinity_SOURCES = tests/unit/check_affinity.c
tests_unit_check_affinity_CFLAGS = $(check_cflags)
tests_unit_check_affinity_LDFLAGS = $(check_ldflags)

tests_methods_check_policy_SOURCES = tests/methods/check_policy.c
tests_methods_check_policy_CFLAGS = $(check_cflags)
tests_methods_check_policy_LDFLAGS = $(check_ldflags)

tests_methods_check_pod_SOURCES = tests/methods/check_pod.c
tests_methods_check_pod_CFLAGS = $(check_cflags)
tests_methods_check_pod_LDFLAGS = $(check_ldflags)
tests_unit_check_quantize_SOURCES = tests/unit/check_quantize.c
tests_unit_check_quantize_CFLAGS = $(check_cflags)
tests_unit_check_quantize_LDFLAGS = $(check_ldflags)

tests_methods_check_kivi_sessions_SOURCES = tests/methods/check_kivi_sessions.c
tests_methods_check_kivi_sessions_CFLAGS = $(check_cflags)
tests_methods_check_kivi_sessions_LDFLAGS = $(guard_ldflags)
tests_ops_check_kivi_SOURCES = tests/ops/check_kivi.c
tests_ops_check_kivi_CFLAGS = $(check_cflags)
tests_ops_check_kivi_LDFLAGS = $(guard_ldflags)

tests_unit_check_head_prune_SOURCES = tests/unit/check_head_prune.c
tests_unit_check_head_prune_CFLAGS = $(check_cflags)
tests_unit_check_head_prune_LDFLAGS = $(check_ldflags)

tests_ops_check_prepack_SOURCES = tests/ops/check_prepack.c
tests_ops_check_prepack_CFLAGS = $(check_cflags)
tests_ops_check_prepack_LDFLAGS = $(guard_ldflags)

tests_unit_check_sample_SOURCES = tests/unit/check_sample.c
tests_unit_check_sample_CFLAGS = $(check_cflags)
tests_unit_check_sample_LDFLAGS = $(check_ldflags)

tests_unit_check_store_pair_SOURCES = tests/unit/check_store_pair.c
tests_unit_check_store_pair_CFLAGS = $(check_cflags)
tests_unit_check_store_pair_LDFLAGS = $(check_ldflags)

tests_unit_check_store_SOURCES = tests/unit/check_store.c
tests_unit_check_store_CFLAGS = $(check_cflags)
tests_unit_check_store_LDFLAGS = $(check_ldflags)

tests_unit_check_chat_SOURCES = tests/unit/check_chat.c
tests_unit_check_chat_CFLAGS = $(check_cflags)
tests_unit_check_chat_LDFLAGS = $(check_ldflags)

tests_unit_check_schemas_SOURCES = tests/unit/check_schemas.c
tests_unit_check_schemas_CFLAGS = $(check_cflags)
tests_unit_check_schemas_LDFLAGS = $(check_ldflags)
tests_unit_check_schemas_LDADD = libserve.la $(check_ldadd)

tests_unit_check_jinja_SOURCES = tests/unit/check_jinja.c
tests_unit_check_jinja_CFLAGS = $(check_cflags)
tests_unit_check_jinja_LDFLAGS = $(check_ldflags)

tests_unit_check_pre_SOURCES = tests/unit/check_pre.c
tests_unit_check_pre_CFLAGS = $(check_cflags)
tests_unit_check_pre_LDFLAGS = $(check_ldflags)

tests_unit_check_template_SOURCES = tests/unit/check_template.c
tests_unit_check_template_CFLAGS = $(check_cflags)
tests_unit_check_template_LDFLAGS = $(check_ldflags)

tests_unit_check_tok_SOURCES = tests/unit/check_tok.c
tests_unit_check_tok_CFLAGS = $(check_cflags)
tests_unit_check_tok_LDFLAGS = $(check_ldflags)

tests_fuzz_check_jinja_fuzz_SOURCES = tests/fuzz/check_jinja_fuzz.c
tests_fuzz_check_jinja_fuzz_CFLAGS = $(check_cflags)
tests_fuzz_check_jinja_fuzz_LDFLAGS = $(check_ldflags)

# Targets of a fuzzer, here run over their seeds; tests/fuzz/build-fuzzers builds the fuzzers.
tests_fuzz_fuzz_bank_SOURCES = tests/fuzz/fuzz_bank.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_file.c tests/fuzz/fuzz_file.h \
	tests/fuzz/fuzz_model.c tests/fuzz/fuzz_model.h
tests_fuzz_fuzz_bank_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_gbnf_SOURCES = tests/fuzz/fuzz_gbnf.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_grammar.c tests/fuzz/fuzz_grammar.h
tests_fuzz_fuzz_gbnf_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_gbnf_LDADD = libcore.la $(JANSSON_LIBS)
tests_fuzz_fuzz_gguf_SOURCES = tests/fuzz/fuzz_gguf.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_file.c tests/fuzz/fuzz_file.h
tests_fuzz_fuzz_gguf_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_gguf_LDADD = libcore.la $(JANSSON_LIBS)
tests_fuzz_fuzz_http_SOURCES = tests/fuzz/fuzz_http.c tests/fuzz/replay.c
tests_fuzz_fuzz_http_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_http_LDADD = libserve.la libcore.la $(JANSSON_LIBS)
tests_fuzz_fuzz_imatrix_SOURCES = tests/fuzz/fuzz_imatrix.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_file.c tests/fuzz/fuzz_file.h
tests_fuzz_fuzz_imatrix_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_imatrix_LDADD = libcore.la $(JANSSON_LIBS)
tests_fuzz_fuzz_jinja_SOURCES = tests/fuzz/fuzz_jinja.c tests/fuzz/replay.c
tests_fuzz_fuzz_jinja_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_jinja_LDADD = libcore.la $(JANSSON_LIBS)
tests_fuzz_fuzz_lora_SOURCES = tests/fuzz/fuzz_lora.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_file.c tests/fuzz/fuzz_file.h \
	tests/fuzz/fuzz_model.c tests/fuzz/fuzz_model.h
tests_fuzz_fuzz_lora_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_policy_SOURCES = tests/fuzz/fuzz_policy.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_model.c tests/fuzz/fuzz_model.h
tests_fuzz_fuzz_policy_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_preset_SOURCES = tests/fuzz/fuzz_preset.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_file.c tests/fuzz/fuzz_file.h \
	tests/fuzz/fuzz_model.c tests/fuzz/fuzz_model.h
tests_fuzz_fuzz_preset_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_regex_SOURCES = tests/fuzz/fuzz_regex.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_grammar.c tests/fuzz/fuzz_grammar.h
tests_fuzz_fuzz_regex_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_regex_LDADD = libcore.la $(JANSSON_LIBS)
tests_fuzz_fuzz_request_SOURCES = tests/fuzz/fuzz_request.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_model.c tests/fuzz/fuzz_model.h
tests_fuzz_fuzz_request_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_request_LDADD = libserve.la $(check_ldadd)
tests_fuzz_fuzz_schema_SOURCES = tests/fuzz/fuzz_schema.c tests/fuzz/replay.c \
	tests/fuzz/fuzz_grammar.c tests/fuzz/fuzz_grammar.h
tests_fuzz_fuzz_schema_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_schema_LDADD = libcore.la $(JANSSON_LIBS)
tests_fuzz_fuzz_tokens_SOURCES = tests/fuzz/fuzz_tokens.c tests/fuzz/replay.c
tests_fuzz_fuzz_tokens_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_utf8_SOURCES = tests/fuzz/fuzz_utf8.c tests/fuzz/replay.c
tests_fuzz_fuzz_utf8_CFLAGS = $(check_cflags)
tests_fuzz_fuzz_utf8_LDADD = libcore.la $(JANSSON_LIBS)

tests_fuzz_check_tok_file_SOURCES = tests/fuzz/check_tok_file.c
tests_fuzz_check_tok_file_CFLAGS = $(check_cflags)
tests_fuzz_check_tok_file_LDFLAGS = $(check_ldflags)

tests_ops_check_prefetch_SOURCES = tests/ops/check_prefetch.c
tests_ops_check_prefetch_CFLAGS = $(check_cflags)
tests_ops_check_prefetch_LDFLAGS = $(check_ldflags)

tests_ops_check_shares_SOURCES = tests/ops/check_shares.c
tests_ops_check_shares_CFLAGS = $(check_cflags)
tests_ops_check_shares_LDFLAGS = $(check_ldflags)

tests_ops_check_tiers_SOURCES = tests/ops/check_tiers.c
tests_ops_check_tiers_CFLAGS = $(check_cflags)
tests_ops_check_tiers_LDFLAGS = $(check_ldflags)

tests_ops_check_work_space_SOURCES = tests/ops/check_work_space.c
tests_ops_check_work_space_CFLAGS = $(check_cflags)
tests_ops_check_work_space_LDFLAGS = $(guard_ldflags)

tests_unit_check_team_SOURCES = tests/unit/check_team.c
tests_unit_check_team_CFLAGS = $(check_cflags)
tests_unit_check_team_LDFLAGS = $(check_ldflags)

tests_unit_check_reply_SOURCES = tests/unit/check_reply.c
tests_unit_check_reply_CFLAGS = $(check_cflags)
tests_unit_check_reply_LDFLAGS = $(check_ldflags)
tests_unit_check_reply_LDADD = libserve.la $(check_ldadd)

tests_unit_check_conversation_SOURCES = tests/unit/check_conversation.c
tests_unit_check_conversation_CFLAGS = $(check_cflags)
tests_unit_check_conversation_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc \
	-Wl,--wrap=realloc,--wrap=strdup,--wrap=strndup
tests_unit_check_conversation_LDADD = libserve.la $(check_ldadd)

tests_unit_check_company_SOURCES = tests/unit/check_company.c tests/kit/jobs.c tests/kit/jobs.h
tests_unit_check_company_CFLAGS = $(check_cflags)
tests_unit_check_company_LDFLAGS = $(check_ldflags)
tests_unit_check_company_LDADD = libserve.la $(check_ldadd)

tests_unit_check_prefix_store_SOURCES = tests/unit/check_prefix_store.c
tests_unit_check_prefix_store_CFLAGS = $(check_cflags)
tests_unit_check_prefix_store_LDFLAGS = $(faults_ldflags)
tests_unit_check_prefix_store_LDADD = libserve.la $(check_ldadd) $(JANSSON_LIBS)

tests_unit_check_patience_SOURCES = tests/unit/check_patience.c
tests_unit_check_patience_CFLAGS = $(check_cflags)
tests_unit_check_patience_LDFLAGS = $(check_ldflags)
tests_unit_check_patience_LDADD = libserve.la $(check_ldadd)

tests_unit_check_scheduler_SOURCES = tests/unit/check_scheduler.c tests/kit/jobs.c \
	tests/kit/jobs.h
tests_unit_check_scheduler_CFLAGS = $(check_cflags)
tests_unit_check_scheduler_LDFLAGS = $(check_ldflags)
tests_unit_check_scheduler_LDADD = libserve.la $(check_ldadd)

tests_unit_check_parting_SOURCES = tests/unit/check_parting.c tests/kit/jobs.c \
	tests/kit/jobs.h
tests_unit_check_parting_CFLAGS = $(check_cflags)
tests_unit_check_parting_LDFLAGS = $(check_ldflags)
tests_unit_check_parting_LDADD = libserve.la $(check_ldadd)

tests_unit_check_threads_SOURCES = tests/unit/check_threads.c
tests_unit_check_threads_CFLAGS = $(check_cflags)
tests_unit_check_threads_LDFLAGS = $(check_ldflags)

tests_kit_make_tiny_SOURCES = tests/kit/make_tiny.c
tests_kit_make_tiny_LDADD = libtest.la libcore.la
endif

EXTRA_DIST += \
	tests/vectors/banks-0.1.0/d2o.bank.xz \
	tests/vectors/banks-0.1.0/full.bank.xz \
	tests/vectors/banks-0.1.0/kivi4.bank.xz \
	tests/vectors/banks-0.1.0/q8_0.bank.xz \
	tests/vectors/banks-0.1.0/pyramidkv.bank.xz \
	tests/vectors/banks-0.1.0/sieve.bank.xz \
	tests/vectors/banks-0.1.0/simlayerkv.bank.xz \
	tests/vectors/banks-0.1.0/snapkv.bank.xz \
	tests/vectors/continuation-qwen2.5-0.5b.json \
	tests/vectors/continuation-smollm2.json \
	tests/vectors/kvpress-smollm2.json \
	tests/vectors/published-smollm2.json \
	tests/vectors/make_codecs.py \
	tests/vectors/make_kivi.py \
	tests/vectors/make_continuation.py \
	tests/vectors/make_kvpress.py \
	tests/vectors/make_published.py \
	tests/vectors/make_methods.py \
	tests/vectors/make_tokenizer.py \
	tests/vectors/tok-gemma-3-270m.json \
	tests/vectors/tok-gpt2.gguf tests/vectors/tok-gpt2.json \
	tests/vectors/tok-llama-bpe.gguf tests/vectors/tok-llama-bpe.json \
	tests/vectors/tok-qwen2.5-coder-0.5b-instruct.json \
	tests/vectors/tok-qwen2.gguf tests/vectors/tok-qwen2.json \
	tests/vectors/tok-smollm.gguf tests/vectors/tok-smollm.json \
	tests/vectors/tok-smollm2-135m-instruct.json \
	tests/vectors/tok-gemma4.gguf tests/vectors/tok-gemma4.json \
	tests/vectors/tok-spm-plain.gguf tests/vectors/tok-spm-plain.json \
	tests/vectors/tok-spm.gguf tests/vectors/tok-spm.json \
	tests/vectors/make_pre_tokenizers.py tests/vectors/tok-pre.json \
	tests/vectors/make_schemas.py tests/vectors/schemas.json \
	tests/vectors/make_jinja.py tests/vectors/jinja.json tests/vectors/jinja-language.json \
	tests/vectors/chat/chatml.jinja tests/vectors/chat/command-a.jinja \
	tests/vectors/chat/command-r.jinja tests/vectors/chat/deepseek.jinja \
	tests/vectors/chat/exaone.jinja tests/vectors/chat/gemma2.jinja \
	tests/vectors/chat/gemma3.jinja tests/vectors/chat/glm4.jinja \
	tests/vectors/chat/granite.jinja tests/vectors/chat/harmony.jinja \
	tests/vectors/chat/gemma4.jinja tests/vectors/chat/glm4.7.jinja \
	tests/vectors/chat/granite4.jinja tests/vectors/chat/kimi-k2.jinja \
	tests/vectors/chat/lfm2.jinja tests/vectors/chat/minimax-m2.jinja \
	tests/vectors/chat/nemotron3.jinja tests/vectors/chat/qwen3.5.jinja \
	tests/vectors/chat/llama2.jinja tests/vectors/chat/llama3.1.jinja \
	tests/vectors/chat/llama3.jinja tests/vectors/chat/mistral-v1.jinja \
	tests/vectors/chat/mistral-v3.jinja tests/vectors/chat/mistral-v7.jinja \
	tests/vectors/chat/olmo2.jinja tests/vectors/chat/phi3.jinja \
	tests/vectors/chat/phi4-mini.jinja tests/vectors/chat/qwen3.jinja \
	tests/vectors/chat/smollm3.jinja tests/vectors/chat/zephyr.jinja \
	tests/vectors/make_tiny_models.py \
	tests/vectors/make_embeddings.py tests/vectors/tiny-embeddings.json \
	tests/vectors/make_adapters.py tests/vectors/tiny-llama-lora.json \
	tests/vectors/tiny-lora-all.gguf tests/vectors/tiny-lora-some.gguf \
	tests/vectors/family-afmoe.json \
	tests/vectors/family-afmoeweights.json \
	tests/vectors/family-apertus.json \
	tests/vectors/family-bailingmoe2.json \
	tests/vectors/family-cohere2.json \
	tests/vectors/family-command-r.json \
	tests/vectors/family-deepseek2.json \
	tests/vectors/family-deepseek2groups.json \
	tests/vectors/family-deepseek3.json \
	tests/vectors/family-deepseek4.json \
	tests/vectors/family-deepseek32.json \
	tests/vectors/family-deepseek32yarn.json \
	tests/vectors/family-dots1.json \
	tests/vectors/family-dynamic.json \
	tests/vectors/family-ernie4_5-moe.json \
	tests/vectors/family-ernie4_5.json \
	tests/vectors/family-exaone.json \
	tests/vectors/family-exaone4.json \
	tests/vectors/family-falcon.json \
	tests/vectors/family-falcon40b.json \
	tests/vectors/family-gemma.json \
	tests/vectors/family-gemma2.json \
	tests/vectors/family-gemma3.json \
	tests/vectors/family-gemma3n.json \
	tests/vectors/family-gemma3nsecond.json \
	tests/vectors/assistant-gemma4.json \
	tests/vectors/assistant-gemma4dense.json \
	tests/vectors/family-gemma4.json \
	tests/vectors/family-gemma4dense.json \
	tests/vectors/family-gemma4moe.json \
	tests/vectors/family-glm4.json \
	tests/vectors/family-glm-dsa.json \
	tests/vectors/family-glm4moe.json \
	tests/vectors/family-glm4sections.json \
	tests/vectors/family-gpt-oss.json \
	tests/vectors/family-gptneox.json \
	tests/vectors/family-gptneoxserial.json \
	tests/vectors/family-granite.json \
	tests/vectors/family-granitemoe.json \
	tests/vectors/family-graniteunrotated.json \
	tests/vectors/family-hunyuan-dense.json \
	tests/vectors/family-hunyuan-moe.json \
	tests/vectors/family-internlm2.json \
	tests/vectors/family-llama4.json \
	tests/vectors/family-llama4chunks.json \
	tests/vectors/family-minimax-m2.json \
	tests/vectors/family-minimax-m3.json \
	tests/vectors/family-minimax-m3local.json \
	tests/vectors/family-mistral3.json \
	tests/vectors/family-mistral4.json \
	tests/vectors/family-mixtral.json \
	tests/vectors/family-nemotron_h_puzzle.json \
	tests/vectors/family-olmo2.json \
	tests/vectors/family-olmo3.json \
	tests/vectors/family-olmo3yarn.json \
	tests/vectors/family-olmoe.json \
	tests/vectors/family-phi2.json \
	tests/vectors/family-phi3.json \
	tests/vectors/family-phi3long.json \
	tests/vectors/family-phi3short.json \
	tests/vectors/family-phi4.json \
	tests/vectors/family-qwen2moe.json \
	tests/vectors/family-qwen2old.json \
	tests/vectors/family-qwen2vl.json \
	tests/vectors/family-qwen3.json \
	tests/vectors/family-falcon-h1.json \
	tests/vectors/family-granitedense.json \
	tests/vectors/family-granitehybrid.json \
	tests/vectors/family-kimi-linear.json \
	tests/vectors/family-lfm2.json \
	tests/vectors/family-lfm2moe.json \
	tests/vectors/family-mamba2.json \
	tests/vectors/family-nemotron_h.json \
	tests/vectors/family-nemotron_h_latent.json \
	tests/vectors/family-nemotron_h_moe.json \
	tests/vectors/family-qwen35.json \
	tests/vectors/family-qwen35moe.json \
	tests/vectors/family-qwen3fused.json \
	tests/vectors/family-qwen3moewidth.json \
	tests/vectors/family-qwen3next.json \
	tests/vectors/family-qwen3nextfused.json \
	tests/vectors/family-qwen4exp.json \
	tests/vectors/family-qwen3moe.json \
	tests/vectors/family-qwen3vl.json \
	tests/vectors/family-qwen3vlmoe.json \
	tests/vectors/family-seed_oss.json \
	tests/vectors/family-smollm3.json \
	tests/vectors/family-stablelm.json \
	tests/vectors/family-stablelm12b.json \
	tests/vectors/family-starcoder2.json \
	tests/vectors/family-yarn.json \
	tests/vectors/tiny-linear.gguf \
	tests/vectors/tiny-linear.json \
	tests/vectors/tiny-llama.gguf \
	tests/vectors/tiny-llama.json \
	tests/vectors/tiny-llama3.1.gguf \
	tests/vectors/tiny-llama3.1.json \
	tests/vectors/tiny-mistral.gguf \
	tests/vectors/tiny-mistral.json \
	tests/vectors/tiny-qwen2.gguf \
	tests/vectors/tiny-qwen2.json \
	tests/vectors/tiny-qwen2tied.gguf \
	tests/vectors/tiny-qwen2tied.json \
	tests/vectors/make_selection.py

# Scripts: they count their own checks and end with "N passed, N failed".
# check-serve first: it waits for a minute
dist_check_SCRIPTS = \
	tests/cli/check-serve \
	tests/cli/check-auto \
	tests/cli/check-agents \
	tests/cli/check-assistant \
	tests/cli/check-calibrate \
	tests/cli/check-chat \
	tests/cli/check-mpi \
	tests/cli/check-cli \
	tests/cli/check-complete \
	tests/cli/check-docs \
	tests/cli/check-embed \
	tests/cli/check-eval \
	tests/cli/check-field \
	tests/cli/check-interfaces \
	tests/cli/check-hostile \
	tests/cli/check-memory \
	tests/cli/check-page \
	tests/cli/check-python \
	tests/cli/check-recording \
	tests/cli/check-shapes \
	tests/cli/check-trouble \
	tests/cli/check-upgrade \
	tests/faults/check-plants \
	tests/faults/sweep \
	tests/check-figures \
	tests/check-musl \
	tests/check-rules
.PHONY: tests/no-library-check
if !HAVE_CHECK
# Without the library no test runs, which must not look like success. make check builds check_DATA.
check_DATA += tests/no-library-check
tests/no-library-check:
	@echo "make check: the tests need the library check 0.15 or newer; configure found none" >&2
	@echo "(Debian: apt-get install check). Install it, run configure again." >&2
	@exit 1
endif
EXTRA_DIST += tests/fuzz/build-fuzzers tests/fuzz/oss-fuzz tests/fuzz/seeds tests/storm
EXTRA_DIST += tests/field/cases.jsonl
EXTRA_DIST += tests/clients/check-clients tests/clients/check-openapi tests/clients/tiny_server.py
EXTRA_DIST += tests/kit/browser.py tests/kit/event_streams.py \
	tests/kit/served.py tests/only.mk tests/tally
EXTRA_DIST += examples/ask.c examples/compare_policies.py examples/read-bank.c
