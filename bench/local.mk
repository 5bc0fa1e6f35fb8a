# Measurements: reports that scripts write
EXTRA_DIST += bench/busy-core bench/drafts bench/half-bank bench/hidden-numbers \
	bench/long-answer bench/make-quality bench/quality_pictures.py bench/quality_report.py \
	bench/RESULTS.md bench/QUALITY.md \
	bench/quality/2stage-published.jsonl bench/quality/2stage.jsonl \
	bench/quality/4-bit.jsonl bench/quality/attention.jsonl bench/quality/attention.svg \
	bench/quality/book.jsonl bench/quality/code.jsonl bench/quality/equal-bytes.jsonl \
	bench/quality/kv.jsonl bench/quality/lazy.jsonl bench/quality/lazy.svg \
	bench/quality/lines.jsonl bench/quality/multihop.jsonl bench/quality/needle-16k.jsonl \
	bench/quality/needle-32k.jsonl bench/quality/needle-4k.jsonl \
	bench/quality/needle-8k.jsonl bench/quality/pod.jsonl \
	bench/quality/prompts-16k-dense.jsonl bench/quality/prompts-16k-sieve.jsonl \
	bench/quality/prompts-16k-xattention-fast.jsonl \
	bench/quality/prompts-16k-xattention-sampled.jsonl \
	bench/quality/prompts-16k-xattention.jsonl bench/quality/prompts-minference.jsonl \
	bench/quality/ratios.jsonl bench/quality/ruler-16k.jsonl bench/quality/ruler-4k.jsonl \
	bench/quality/ruler-8k.jsonl bench/quality/score-bytes.svg bench/quality/seconds.json \
	bench/quality/smollm2-needle.jsonl bench/quality/smollm2-ruler.jsonl \
	bench/quality/smollm2-wikitext.jsonl bench/quality/speed-32k.jsonl \
	bench/quality/speed.jsonl bench/quality/verdict.md bench/quality/wikitext.jsonl \
	bench/results/ops-zen4-2-cores.csv bench/results/zen4-2-cores.jsonl \
	bench/results/zen4-2-cores-avx2.jsonl
.PHONY: bench-quality bench-quality-smoke
# CTXBANK_SUITE names the folder of the suite's data
bench-quality: ctxbank$(EXEEXT)
	CTXBANK_DATA=$(srcdir)/data $(srcdir)/bench/make-quality --program ./ctxbank$(EXEEXT)
bench-quality-smoke: ctxbank$(EXEEXT)
	CTXBANK_DATA=$(srcdir)/data $(srcdir)/bench/make-quality --smoke \
		--program ./ctxbank$(EXEEXT) --out smoke

# Policies over one prompt, computed once; built, not installed.
noinst_PROGRAMS += bench/act_bits bench/batches bench/draft_cost bench/policies
bench_act_bits_SOURCES = bench/act_bits.c
bench_act_bits_LDADD = libcore.la
bench_batches_SOURCES = bench/batches.c
bench_batches_LDADD = libcore.la
bench_draft_cost_SOURCES = bench/draft_cost.c
bench_draft_cost_LDADD = libcore.la
bench_policies_SOURCES = bench/policies.c
bench_policies_LDADD = libcore.la
