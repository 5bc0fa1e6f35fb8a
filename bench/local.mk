# Measurements: reports that scripts write, and the answers that they write them from
EXTRA_DIST += bench/beside_llama.c bench/busy-core bench/drafts bench/families bench/goals \
	bench/half-bank bench/hidden-numbers \
	bench/long-answer bench/make-quality bench/quality_figures.py bench/random_shapes.py \
	bench/rank-table bench/rank-time \
	bench/quality_report.py bench/RESULTS.md bench/QUALITY.md bench/quality bench/results
.PHONY: bench-quality bench-quality-smoke
# CTXBANK_SUITE names the folder of the suite's data
bench-quality: ctxbank$(EXEEXT) bench/draw-pictures$(EXEEXT)
	CTXBANK_DATA=$(srcdir)/data $(srcdir)/bench/make-quality --program ./ctxbank$(EXEEXT)
bench-quality-smoke: ctxbank$(EXEEXT) bench/draw-pictures$(EXEEXT)
	CTXBANK_DATA=$(srcdir)/data $(srcdir)/bench/make-quality --smoke \
		--program ./ctxbank$(EXEEXT) --out smoke

# Policies over one prompt, computed once; built, not installed.
noinst_PROGRAMS += bench/act_bits bench/at_depth \
	bench/batches bench/draft_cost bench/draw-pictures bench/policies bench/random-model
bench_act_bits_SOURCES = bench/act_bits.c
bench_act_bits_LDADD = libcore.la
bench_at_depth_SOURCES = bench/at_depth.c
bench_at_depth_LDADD = libcore.la
bench_batches_SOURCES = bench/batches.c
bench_batches_LDADD = libcore.la
bench_draft_cost_SOURCES = bench/draft_cost.c
bench_draft_cost_LDADD = libcore.la
bench_draw_pictures_SOURCES = bench/draw_pictures.c
bench_draw_pictures_LDADD = $(cli_libs)
bench_policies_SOURCES = bench/policies.c
bench_policies_LDADD = libcore.la
bench_random_model_SOURCES = bench/random_model.c
bench_random_model_LDADD = libcore.la
EXTRA_DIST += bench/shapes

# The host's own time beside a device: a driver that does nothing
EXTRA_DIST += bench/idle_cuda.c
CLEANFILES += bench/idle/libcuda.so.1
bench/idle/libcuda.so.1: $(srcdir)/bench/idle_cuda.c
	$(AM_V_GEN)$(MKDIR_P) bench/idle && $(CC) -std=c11 -O2 -Wall -Wextra -fPIC -shared -o $@ \
		$(srcdir)/bench/idle_cuda.c
