# tests/local.mk - the harness; every room's tests stand in tests/ROOM/local.mk.
# Every test speaks TAP: C programs through cmocka's TAP output, shell scripts through tests/support/tap.sh.
TEST_EXTENSIONS = .test
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
TEST_LOG_DRIVER = $(LOG_DRIVER)
AM_TESTS_ENVIRONMENT = \
	CMOCKA_MESSAGE_OUTPUT=TAP; export CMOCKA_MESSAGE_OUTPUT; \
	SRC='$(abs_top_srcdir)'; BUILD='$(abs_top_builddir)'; export SRC BUILD; \
	TMUX_PROG='$(TMUX_PROG)'; MANDOC='$(MANDOC)'; SHELLCHECK='$(SHELLCHECK)'; SQLITE3_PROG='$(SQLITE3_PROG)'; PYTHON3='$(PYTHON3)'; \
	export TMUX_PROG MANDOC SHELLCHECK SQLITE3_PROG PYTHON3;
EXTRA_DIST += tests/support/tap.sh tests/summary

# A run closes with one line that counts all of it. check-local prints it and decides, so a failed check-TESTS must not
# stop make before: its status is ignored there, never lost, since the .trs files carry every result.
.IGNORE: check-TESTS
check-local: check-TESTS
	@$(SHELL) $(top_srcdir)/tests/summary $(TEST_LOGS:.log=.trs)

# The tests that need models run one after another, by `make check-e2e`; `make check` never runs them. Naming them in TESTS
# under a condition that is never true makes Automake write their rules.
if TESTS_INCLUDE_E2E
TESTS += $(SUITE_E2E)
endif
check-e2e: all
	@test -n '$(strip $(SUITE_E2E))' || { echo 'no model tests in this build'; exit 1; }
	@$(MAKE) $(AM_MAKEFLAGS) -j1 check TESTS='$(SUITE_E2E)'
.PHONY: check-e2e

include tests/kernels/local.mk
include tests/storage/local.mk
include tests/controller/local.mk
include tests/controller/rates.mk
include tests/controller/http.mk
include tests/controller/plan.mk
include tests/controller/watchdog.mk
include tests/controller/replay.mk
include tests/controller/load.mk
include tests/controller/kernels.mk
include tests/controller/device.mk
include tests/tui/local.mk
include tests/docs/local.mk
include tests/e2e/local.mk
