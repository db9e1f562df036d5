# tests/kernels/abi.mk - the interface of libtrimtab as its users have it: symbols and layouts, installation, hostile calls.
check_PROGRAMS += tests/kernels/abi_layout
tests_kernels_abi_layout_SOURCES = tests/kernels/abi_layout.c
dist_check_SCRIPTS += tests/kernels/abi.test tests/kernels/golden.test tests/kernels/install.test
TESTS += tests/kernels/abi.test tests/kernels/golden.test tests/kernels/install.test
EXTRA_DIST += kernels/libtrimtab.symbols
# What compiles the example, with the sanitizers that the library was built with.
AM_TESTS_ENVIRONMENT += CC='$(CC)'; CXX='$(CXX)'; LINK_FLAGS='$(AM_LDFLAGS)'; export CC CXX LINK_FLAGS;

check_PROGRAMS += tests/kernels/fuzz_abi
TESTS += tests/kernels/fuzz_abi
tests_kernels_fuzz_abi_SOURCES = tests/kernels/fuzz_abi.c tests/support/fuzz_replay.c tests/support/fuzz_replay.h
tests_kernels_fuzz_abi_LDADD = libtrimtab.la
EXTRA_DIST += tests/kernels/corpus/abi
