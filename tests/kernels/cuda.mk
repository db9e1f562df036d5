# tests/kernels/cuda.mk - the CUDA backend without a device: the .cu files as C++ against the project's own shim.
# tests/kernels/shim/cuda_NAME.cc includes kernels/cuda_NAME.cu; the shim's cuda_runtime.h comes first on the include path.
# Contraction stays off: the bits are compared.
shim_cppflags = -I$(top_srcdir)/tests/kernels/shim $(AM_CPPFLAGS) -DLANE_SHIM=1
shim_cxxflags = $(AM_CXXFLAGS) -std=c++17 -ffp-contract=off -fno-trapping-math -fno-math-errno
shim_runtime = \
	tests/kernels/shim/cuda_runtime.h \
	tests/kernels/shim/shim.cc tests/kernels/shim/shim.h \
	tests/kernels/shim/shim_block.h \
	tests/kernels/shim/shim_memory.cc
shim_kernels = tests/kernels/shim/cuda_device.cc

check_LTLIBRARIES += tests/kernels/libshim.la
tests_kernels_libshim_la_SOURCES = $(shim_runtime) tests/kernels/shim/shim_fibres.cc $(shim_kernels)
tests_kernels_libshim_la_CPPFLAGS = $(shim_cppflags)
tests_kernels_libshim_la_CXXFLAGS = $(shim_cxxflags)

# The shim itself: what it must notice.
check_PROGRAMS += tests/kernels/test_shim
TESTS += tests/kernels/test_shim
tests_kernels_test_shim_SOURCES = tests/kernels/test_shim.cc
tests_kernels_test_shim_CPPFLAGS = $(shim_cppflags)
tests_kernels_test_shim_CXXFLAGS = $(shim_cxxflags)
tests_kernels_test_shim_LDADD = tests/kernels/libshim.la
EXTRA_DIST += tests/kernels/shim/shim_threads.cc
