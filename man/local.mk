# Manual pages, what writes parts of them from the option table, and completion for shells
dist_man_MANS += \
	man/ctxbank-bank-list.1 \
	man/ctxbank-bank-rm.1 \
	man/ctxbank-bank-save.1 \
	man/ctxbank-bank-show.1 \
	man/ctxbank-bank-verify.1 \
	man/ctxbank-bank.1 \
	man/ctxbank-bank.5 \
	man/ctxbank-bench.1 \
	man/ctxbank-calibrate-density.1 \
	man/ctxbank-calibrate-filter-layers.1 \
	man/ctxbank-calibrate-heads.1 \
	man/ctxbank-calibrate-lazy.1 \
	man/ctxbank-calibrate-pyramid.1 \
	man/ctxbank-calibrate-similarity.1 \
	man/ctxbank-calibrate.1 \
	man/ctxbank-chat.1 \
	man/ctxbank-embed.1 \
	man/ctxbank-eval-2stage.1 \
	man/ctxbank-eval-attention.1 \
	man/ctxbank-eval-continuation.1 \
	man/ctxbank-eval-file.1 \
	man/ctxbank-eval-kld.1 \
	man/ctxbank-eval-lazy.1 \
	man/ctxbank-eval-longbench.1 \
	man/ctxbank-eval-needle.1 \
	man/ctxbank-eval-passkey.1 \
	man/ctxbank-eval-perplexity.1 \
	man/ctxbank-eval-ruler.1 \
	man/ctxbank-eval.1 \
	man/ctxbank-grammar.7 \
	man/ctxbank-info.1 \
	man/ctxbank-mpi.7 \
	man/ctxbank-options.7 \
	man/ctxbank-policies.7 \
	man/ctxbank-quantize.1 \
	man/ctxbank-run.1 \
	man/ctxbank-serve.1 \
	man/ctxbank-tokenize.1 \
	man/ctxbank.1 \
	man/ctxbank.3

bash_completiondir = $(datadir)/bash-completion/completions
dist_bash_completion_DATA = completions/bash/ctxbank
zsh_completiondir = $(datadir)/zsh/site-functions
dist_zsh_completion_DATA = completions/zsh/_ctxbank
fish_completiondir = $(datadir)/fish/vendor_completions.d
dist_fish_completion_DATA = completions/fish/ctxbank.fish

EXTRA_DIST += tools/update-docs man/mandoc.css
.PHONY: update-docs
update-docs: tools/make-manual$(EXEEXT)
	$(srcdir)/tools/update-docs tools/make-manual$(EXEEXT)
