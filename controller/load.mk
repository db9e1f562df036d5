# controller/load.mk - the load benchmark, a verb of trimtab-bench.
LOAD_SOURCES = \
	controller/bench_load.c controller/bench_load.h controller/bench_load_form.c controller/bench_load_grid.c controller/bench_load_oracle.c \
	controller/bench_load_report.c controller/bench_load_result.c controller/bench_load_run.c
trimtab_bench_SOURCES += $(LOAD_SOURCES)
