# tests/controller/watchdog.mk - injected faults: what must be noticed, and what must be fallen back from.
if HAVE_CMOCKA
check_PROGRAMS += tests/controller/test_watchdog
TESTS += tests/controller/test_watchdog
endif
tests_controller_test_watchdog_SOURCES = tests/controller/test_watchdog.c $(SYNTHETIC)
tests_controller_test_watchdog_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_controller_test_watchdog_LDADD = $(NODE_TEST_LIBS) $(CMOCKA_LIBS)
