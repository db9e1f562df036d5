# tests/kernels/local.mk
# The enumerating choice: the law tests of other rooms link it too.
check_LTLIBRARIES += tests/kernels/libenumerate.la
tests_kernels_libenumerate_la_SOURCES = tests/kernels/enumerate.c tests/kernels/enumerate.h
tests_kernels_libenumerate_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off

check_PROGRAMS += tests/kernels/header
TESTS += tests/kernels/header
tests_kernels_header_SOURCES = tests/kernels/header.cc
tests_kernels_header_CXXFLAGS = $(AM_CXXFLAGS) -std=c++11 -pedantic
tests_kernels_header_LDADD = libtrimtab.la

if HAVE_CMOCKA
check_PROGRAMS += tests/kernels/test_law
TESTS += tests/kernels/test_law
tests_kernels_test_law_SOURCES = tests/kernels/test_law.c tests/kernels/law_world.c tests/kernels/law_world.h
tests_kernels_test_law_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_kernels_test_law_LDADD = tests/kernels/libenumerate.la kernels/libtrimtab_core.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/kernels/test_rows
TESTS += tests/kernels/test_rows
tests_kernels_test_rows_SOURCES = tests/kernels/test_rows.c tests/kernels/row_kinds.c tests/kernels/row_kinds.h
tests_kernels_test_rows_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) -ffp-contract=off -fopenmp-simd
tests_kernels_test_rows_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc
tests_kernels_test_rows_LDADD = kernels/libtrimtab_core.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/kernels/test_sampling
TESTS += tests/kernels/test_sampling
tests_kernels_test_sampling_SOURCES = tests/kernels/test_sampling.c tests/kernels/row_kinds.c tests/kernels/row_kinds.h
tests_kernels_test_sampling_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) -ffp-contract=off -fopenmp-simd
tests_kernels_test_sampling_LDADD = tests/kernels/libenumerate.la kernels/libtrimtab_core.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/kernels/test_transform
TESTS += tests/kernels/test_transform
tests_kernels_test_transform_SOURCES = tests/kernels/test_transform.c tests/kernels/row_kinds.c tests/kernels/row_kinds.h
tests_kernels_test_transform_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) -fopenmp-simd
tests_kernels_test_transform_LDADD = kernels/libtrimtab_core.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/kernels/test_verify
TESTS += tests/kernels/test_verify
tests_kernels_test_verify_SOURCES = tests/kernels/test_verify.c tests/kernels/row_kinds.c tests/kernels/row_kinds.h
tests_kernels_test_verify_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_kernels_test_verify_LDADD = kernels/libtrimtab_core.la $(CMOCKA_LIBS)

endif

include tests/kernels/estimator.mk
include tests/kernels/cuda.mk
include tests/kernels/abi.mk
