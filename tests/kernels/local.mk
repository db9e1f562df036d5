# tests/kernels/local.mk
# The enumerating choice: the law tests of other rooms link it too.
check_LTLIBRARIES += tests/kernels/libenumerate.la
tests_kernels_libenumerate_la_SOURCES = tests/kernels/enumerate.c tests/kernels/enumerate.h
tests_kernels_libenumerate_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off

if HAVE_CMOCKA
check_PROGRAMS += tests/kernels/test_law
TESTS += tests/kernels/test_law
tests_kernels_test_law_SOURCES = tests/kernels/test_law.c tests/kernels/law_world.c tests/kernels/law_world.h
tests_kernels_test_law_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_kernels_test_law_LDADD = tests/kernels/libenumerate.la kernels/libtrimtab_core.la $(CMOCKA_LIBS)
endif

include tests/kernels/estimator.mk
