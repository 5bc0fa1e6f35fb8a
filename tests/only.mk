# SPDX-License-Identifier: MIT
# only.mk - `make check TESTS=...` builds the programs of these tests alone. Included by make, not
# by automake, which knows no ifeq.
ifeq ($(origin TESTS),command line)
override check_PROGRAMS := tests/kit/make_tiny $(filter $(check_PROGRAMS),$(TESTS)) \
	$(if $(filter tests/faults/sweep,$(TESTS)),tests/faults/ctxbank) \
	$(if $(filter tests/cli/check-docs,$(TESTS)),tools/make-manual)
endif
