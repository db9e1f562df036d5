# controller/kernels.mk - `trimtab bench kernels`, a verb of trimtab-bench.
trimtab_bench_SOURCES += controller/bench_kernels.c controller/bench_kernels.h \
	controller/bench_kernels_costs.c controller/bench_kernels_rows.c
