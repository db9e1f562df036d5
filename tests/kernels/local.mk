# tests/kernels/local.mk
# The enumerating choice: the law tests of other rooms link it too.
check_LTLIBRARIES += tests/kernels/libenumerate.la
tests_kernels_libenumerate_la_SOURCES = tests/kernels/enumerate.c tests/kernels/enumerate.h
tests_kernels_libenumerate_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off

include tests/kernels/estimator.mk
