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

# libtrimtab with the shim behind backend "cuda".
shim_kernels_backend = \
	tests/kernels/shim/cuda_api.cc \
	tests/kernels/shim/cuda_backend.cc \
	tests/kernels/shim/cuda_rows.cc \
	tests/kernels/shim/cuda_transform.cc \
	tests/kernels/shim/cuda_verify.cc \
	tests/kernels/estimator_shim.cc
check_LTLIBRARIES += tests/kernels/libtrimtab_shim.la
tests_kernels_libtrimtab_shim_la_SOURCES = $(shim_kernels_backend)
tests_kernels_libtrimtab_shim_la_CPPFLAGS = $(shim_cppflags)
tests_kernels_libtrimtab_shim_la_CXXFLAGS = $(shim_cxxflags)
tests_kernels_libtrimtab_shim_la_LIBADD = tests/kernels/libshim.la kernels/libtrimtab_base.la

# The shim itself: what it must notice.
check_PROGRAMS += tests/kernels/test_shim
TESTS += tests/kernels/test_shim
tests_kernels_test_shim_SOURCES = tests/kernels/test_shim.cc
tests_kernels_test_shim_CPPFLAGS = $(shim_cppflags)
tests_kernels_test_shim_CXXFLAGS = $(shim_cxxflags)
tests_kernels_test_shim_LDADD = tests/kernels/libshim.la
EXTRA_DIST += tests/kernels/shim/shim_threads.cc tests/kernels/shim/shim_fibres.cc

# trimtab_cuda.h: with the shim, and where nvcc is, for a device.
check_PROGRAMS += tests/kernels/shim_cuda_step
TESTS += tests/kernels/shim_cuda_step
cuda_step_sources = tests/kernels/test_cuda_step.cc tests/kernels/row_kinds.c tests/kernels/row_kinds.h
tests_kernels_shim_cuda_step_SOURCES = $(cuda_step_sources)
tests_kernels_shim_cuda_step_CPPFLAGS = $(shim_cppflags)
tests_kernels_shim_cuda_step_CXXFLAGS = $(shim_cxxflags)
tests_kernels_shim_cuda_step_LDADD = tests/kernels/libtrimtab_shim.la
if HAVE_CUDA
check_PROGRAMS += tests/kernels/test_cuda_step
TESTS += tests/kernels/test_cuda_step
tests_kernels_test_cuda_step_SOURCES = $(cuda_step_sources)
tests_kernels_test_cuda_step_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_kernels_test_cuda_step_CXXFLAGS = $(AM_CXXFLAGS) -std=c++17
tests_kernels_test_cuda_step_LDADD = kernels/libtrimtab_core.la $(CUDA_LIBS)
endif

# The same with the sanitizers, whatever the build has: fibres under the address and undefined-behaviour sanitizers, real
# threads under the thread sanitizer. Then the faults that all of them must find.
sanitized_sources = $(cuda_step_sources) $(shim_runtime) $(shim_kernels) $(shim_kernels_backend)
if SHIM_ASAN
check_PROGRAMS += tests/kernels/shim_asan_cuda_step
TESTS += tests/kernels/shim_asan_cuda_step
tests_kernels_shim_asan_cuda_step_SOURCES = $(sanitized_sources) tests/kernels/shim/shim_fibres.cc
tests_kernels_shim_asan_cuda_step_CPPFLAGS = $(shim_cppflags)
tests_kernels_shim_asan_cuda_step_CFLAGS = $(WARN_CFLAGS) $(shim_asan)
tests_kernels_shim_asan_cuda_step_CXXFLAGS = $(WARN_CXXFLAGS) -std=c++17 -ffp-contract=off $(shim_asan)
tests_kernels_shim_asan_cuda_step_LDFLAGS = -fsanitize=address,undefined
tests_kernels_shim_asan_cuda_step_LDADD = kernels/libtrimtab_base.la
shim_asan = -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
if SHIM_TSAN
check_PROGRAMS += tests/kernels/shim_tsan_cuda_step
TESTS += tests/kernels/shim_tsan_cuda_step
tests_kernels_shim_tsan_cuda_step_SOURCES = $(sanitized_sources) tests/kernels/shim/shim_threads.cc
tests_kernels_shim_tsan_cuda_step_CPPFLAGS = $(shim_cppflags) -DSHIM_THREADS=1
tests_kernels_shim_tsan_cuda_step_CFLAGS = $(WARN_CFLAGS) -g -O1 -fsanitize=thread
tests_kernels_shim_tsan_cuda_step_CXXFLAGS = $(WARN_CXXFLAGS) -std=c++17 -ffp-contract=off -g -O1 -fsanitize=thread
tests_kernels_shim_tsan_cuda_step_LDFLAGS = -fsanitize=thread
tests_kernels_shim_tsan_cuda_step_LDADD = kernels/libtrimtab_base.la
endif
dist_check_SCRIPTS += tests/kernels/seeds.test tests/kernels/ptx.test
TESTS += tests/kernels/seeds.test tests/kernels/ptx.test
AM_TESTS_ENVIRONMENT += NVCC='$(NVCC)'; export NVCC;
tests/kernels/seeds.log: tests/kernels/shim_cuda_step

# The tests of the C interface once more, linked with the shim: backend "auto" is a device then.
if HAVE_CMOCKA
check_PROGRAMS += tests/kernels/test_backends
TESTS += tests/kernels/test_backends
tests_kernels_test_backends_SOURCES = tests/kernels/test_backends.c tests/kernels/row_kinds.c tests/kernels/row_kinds.h
tests_kernels_test_backends_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) -ffp-contract=off
tests_kernels_test_backends_LDADD = kernels/libtrimtab_core.la $(CMOCKA_LIBS)

shim_tests = tests/kernels/shim_backends tests/kernels/shim_rows tests/kernels/shim_sampling tests/kernels/shim_transform tests/kernels/shim_verify
check_PROGRAMS += $(shim_tests)
TESTS += $(shim_tests)
shim_test_cflags = $(AM_CFLAGS) $(CMOCKA_CFLAGS) -ffp-contract=off -fopenmp-simd -DTEST_SLOWNESS=20
shim_test_ldadd = tests/kernels/libtrimtab_shim.la $(CMOCKA_LIBS)
tests_kernels_shim_backends_SOURCES = $(tests_kernels_test_backends_SOURCES)
nodist_EXTRA_tests_kernels_shim_backends_SOURCES = dummy.cc
tests_kernels_shim_backends_CFLAGS = $(shim_test_cflags)
tests_kernels_shim_backends_LDADD = $(shim_test_ldadd)
tests_kernels_shim_rows_SOURCES = $(tests_kernels_test_rows_SOURCES)
nodist_EXTRA_tests_kernels_shim_rows_SOURCES = dummy.cc
tests_kernels_shim_rows_CFLAGS = $(shim_test_cflags)
tests_kernels_shim_rows_LDFLAGS = $(tests_kernels_test_rows_LDFLAGS)
tests_kernels_shim_rows_LDADD = $(shim_test_ldadd)
tests_kernels_shim_sampling_SOURCES = $(tests_kernels_test_sampling_SOURCES)
nodist_EXTRA_tests_kernels_shim_sampling_SOURCES = dummy.cc
tests_kernels_shim_sampling_CFLAGS = $(shim_test_cflags)
tests_kernels_shim_sampling_LDADD = tests/kernels/libenumerate.la $(shim_test_ldadd)
tests_kernels_shim_transform_SOURCES = $(tests_kernels_test_transform_SOURCES)
nodist_EXTRA_tests_kernels_shim_transform_SOURCES = dummy.cc
tests_kernels_shim_transform_CFLAGS = $(shim_test_cflags)
tests_kernels_shim_transform_LDADD = $(shim_test_ldadd)
tests_kernels_shim_verify_SOURCES = $(tests_kernels_test_verify_SOURCES)
nodist_EXTRA_tests_kernels_shim_verify_SOURCES = dummy.cc
tests_kernels_shim_verify_CFLAGS = $(shim_test_cflags)
tests_kernels_shim_verify_LDADD = $(shim_test_ldadd)
endif

# On a machine with a device: the tests of the C interface against it, and NVIDIA's checkers where they are installed. Refuses
# where there is no device.
gpu_tests = tests/kernels/test_cuda_step
if HAVE_CMOCKA
gpu_tests += tests/kernels/test_backends tests/kernels/test_rows tests/kernels/test_sampling tests/kernels/test_transform tests/kernels/test_verify
endif
check-gpu: $(gpu_tests)
	$(AM_V_at)sh $(srcdir)/tests/kernels/check-gpu $(gpu_tests)
.PHONY: check-gpu
EXTRA_DIST += tests/kernels/check-gpu
