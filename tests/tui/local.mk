# tests/tui/local.mk - parts alone, golden screens, a real terminal through tmux, and the verbs against a stand-in daemon.
if HAVE_CMOCKA
check_PROGRAMS += tests/tui/test_collector tests/tui/test_layout tests/tui/test_parts
TESTS += tests/tui/test_collector tests/tui/test_layout tests/tui/test_parts
tests_tui_test_collector_SOURCES = tests/tui/test_collector.c
tests_tui_test_collector_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_tui_test_collector_LDADD = tui/libtui.la $(CMOCKA_LIBS)
tests_tui_test_layout_SOURCES = tests/tui/test_layout.c
tests_tui_test_layout_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_tui_test_layout_LDADD = tui/libtui.la $(CMOCKA_LIBS)
tests_tui_test_parts_SOURCES = tests/tui/test_parts.c
tests_tui_test_parts_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_tui_test_parts_LDADD = tui/libtui.la $(CMOCKA_LIBS)
endif
dist_check_SCRIPTS += tests/tui/golden.test tests/tui/terminal.test tests/tui/verbs.test tests/tui/ab.test
TESTS += tests/tui/golden.test tests/tui/terminal.test tests/tui/verbs.test tests/tui/ab.test
EXTRA_DIST += tests/tui/fake_daemon.py tests/tui/daemon.sh tests/tui/data tests/tui/scripts tests/tui/screens
