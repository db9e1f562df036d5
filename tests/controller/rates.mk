# tests/controller/rates.mk - the effect of a toggle, live and from the store.
if HAVE_CMOCKA
check_PROGRAMS += tests/controller/test_rates
TESTS += tests/controller/test_rates
tests_controller_test_rates_SOURCES = tests/controller/test_rates.c
tests_controller_test_rates_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_controller_test_rates_LDADD = $(NODE_TEST_LIBS) $(CMOCKA_LIBS)
endif
