# tests/kernels/estimator.mk - tests of the estimators and of allocation; included by tests/kernels/local.mk.
check_PROGRAMS += tests/kernels/golden_vectors
TESTS += tests/kernels/golden_vectors
tests_kernels_golden_vectors_SOURCES = \
	tests/kernels/golden_vectors.c tests/kernels/golden_set.c tests/kernels/golden_set.h \
	tests/kernels/golden_features.c tests/kernels/golden_features.h \
	controller/parity_budget.c controller/parity_budget.h
tests_kernels_golden_vectors_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) -ffp-contract=off -fopenmp-simd
tests_kernels_golden_vectors_LDADD = kernels/libtrimtab_core.la $(JANSSON_LIBS)

# Figures: tests/kernels/estimator_sim [--steps N] [--seeds N] [--only STREAM]; the test runs `--check`.
check_PROGRAMS += tests/kernels/estimator_sim
dist_check_SCRIPTS += tests/kernels/estimator.test
TESTS += tests/kernels/estimator.test
tests_kernels_estimator_sim_SOURCES = \
	tests/kernels/estimator_sim.c \
	tests/kernels/estimator_loop.c tests/kernels/estimator_loop.h \
	tests/kernels/estimator_world.c tests/kernels/estimator_world.h
tests_kernels_estimator_sim_LDADD = kernels/libestimator.la

# By hand, on traces: tests/kernels/estimator_traces [--requests N] FILE...
check_PROGRAMS += tests/kernels/estimator_traces
tests_kernels_estimator_traces_SOURCES = tests/kernels/estimator_traces.c
tests_kernels_estimator_traces_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS)
tests_kernels_estimator_traces_LDADD = $(NODE_TEST_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/kernels/test_estimator tests/kernels/test_online tests/kernels/test_allocate
TESTS += tests/kernels/test_estimator tests/kernels/test_online tests/kernels/test_allocate
tests_kernels_test_estimator_SOURCES = tests/kernels/test_estimator.c
tests_kernels_test_estimator_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_kernels_test_estimator_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc
tests_kernels_test_estimator_LDADD = kernels/libestimator.la $(CMOCKA_LIBS)
tests_kernels_test_online_SOURCES = tests/kernels/test_online.c
tests_kernels_test_online_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) -fopenmp-simd
tests_kernels_test_online_LDADD = kernels/libestimator.la $(CMOCKA_LIBS)
tests_kernels_test_allocate_SOURCES = tests/kernels/test_allocate.c
tests_kernels_test_allocate_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_kernels_test_allocate_LDADD = kernels/libestimator.la $(CMOCKA_LIBS)
endif

# The device flavour against the shim; contraction stays off, since the bits are compared.
check_PROGRAMS += tests/kernels/test_estimator_device
TESTS += tests/kernels/test_estimator_device
tests_kernels_test_estimator_device_SOURCES = tests/kernels/test_estimator_device.cc
tests_kernels_test_estimator_device_CPPFLAGS = $(shim_cppflags)
tests_kernels_test_estimator_device_CXXFLAGS = $(shim_cxxflags)
tests_kernels_test_estimator_device_LDADD = tests/kernels/libtrimtab_shim.la
if HAVE_CUDA
check_PROGRAMS += tests/kernels/test_estimator_gpu
TESTS += tests/kernels/test_estimator_gpu
tests_kernels_test_estimator_gpu_SOURCES = tests/kernels/test_estimator_device.cc
tests_kernels_test_estimator_gpu_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_kernels_test_estimator_gpu_CXXFLAGS = $(AM_CXXFLAGS) -std=c++17
tests_kernels_test_estimator_gpu_LDADD = kernels/libtrimtab_core.la $(CUDA_LIBS)
endif

# The same with the sanitizers, as tests/kernels/cuda.mk has them.
if SHIM_ASAN
check_PROGRAMS += tests/kernels/shim_asan_estimator
TESTS += tests/kernels/shim_asan_estimator
tests_kernels_shim_asan_estimator_SOURCES = tests/kernels/test_estimator_device.cc \
	$(shim_runtime) $(shim_kernels) $(shim_kernels_backend) tests/kernels/shim/shim_fibres.cc
tests_kernels_shim_asan_estimator_CPPFLAGS = $(shim_cppflags)
tests_kernels_shim_asan_estimator_CXXFLAGS = $(WARN_CXXFLAGS) -std=c++17 -ffp-contract=off $(shim_asan)
tests_kernels_shim_asan_estimator_LDFLAGS = -fsanitize=address,undefined
tests_kernels_shim_asan_estimator_LDADD = kernels/libtrimtab_base.la
endif
if SHIM_TSAN
check_PROGRAMS += tests/kernels/shim_tsan_estimator
TESTS += tests/kernels/shim_tsan_estimator
tests_kernels_shim_tsan_estimator_SOURCES = tests/kernels/test_estimator_device.cc \
	$(shim_runtime) $(shim_kernels) $(shim_kernels_backend) tests/kernels/shim/shim_threads.cc
tests_kernels_shim_tsan_estimator_CPPFLAGS = $(shim_cppflags) -DSHIM_THREADS=1
tests_kernels_shim_tsan_estimator_CXXFLAGS = $(WARN_CXXFLAGS) -std=c++17 -ffp-contract=off -g -O1 -fsanitize=thread
tests_kernels_shim_tsan_estimator_LDFLAGS = -fsanitize=thread
tests_kernels_shim_tsan_estimator_LDADD = kernels/libtrimtab_base.la
endif

EXTRA_DIST += \
	tests/kernels/data/vectors/README \
	tests/kernels/data/vectors/a-wellspec-k5.json.gz \
	tests/kernels/data/vectors/b-drift-k8.json.gz \
	tests/kernels/data/vectors/budget.json.gz \
	tests/kernels/data/vectors/c-starved-k7.json.gz \
	tests/kernels/data/vectors/d-nearconst-k5.json.gz \
	tests/kernels/data/vectors/e-extreme-k4.json.gz \
	tests/kernels/data/vectors/f-nan-k5.json.gz \
	tests/kernels/data/vectors/features.json.gz \
	tests/kernels/data/vectors/g-ragged-k6.json.gz \
	tests/kernels/data/vectors/i-negslope-k5.json.gz \
	tests/kernels/data/vectors/j-k1.json.gz \
	tests/kernels/data/vectors/k-single-k15.json.gz \
	tests/kernels/data/vectors/l-wide-k3.json.gz \
	tests/kernels/data/vectors/m-closedloop-k5.json.gz \
	tests/kernels/data/vectors/staleness.json.gz
