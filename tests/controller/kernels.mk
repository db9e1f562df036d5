# tests/controller/kernels.mk - `trimtab bench kernels`, quickly.
dist_check_SCRIPTS += tests/controller/bench_kernels.test
TESTS += tests/controller/bench_kernels.test
