# controller/console.mk - the benchmark of the console, a verb of trimtab-bench.
trimtab_bench_SOURCES += controller/bench_console.c
trimtab_bench_LDADD += controller/libclient.la
