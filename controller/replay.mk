# controller/replay.mk - traces, their replay under a virtual clock, and the benchmarks over them.
controller_libnode_la_SOURCES += \
	controller/cost_cache.c controller/cost_cache.h \
	controller/decisions.c controller/decisions.h \
	controller/grade.c controller/grade.h \
	controller/lines.c controller/lines.h \
	controller/node_replay.c controller/node_replay.h \
	controller/node_report.c controller/node_report.h \
	controller/node_rows.c controller/node_rows.h \
	controller/parity_budget.c controller/parity_budget.h \
	controller/replay.c controller/replay.h controller/replay_streams.h \
	controller/replay_policies.c \
	controller/trace.c controller/trace.h controller/trace_json.c \
	controller/trace_record.c controller/trace_record.h
controller_libnode_la_CFLAGS += $(ZLIB_CFLAGS)
controller_libnode_la_LIBADD = $(ZLIB_LIBS)

trimtab_bench_SOURCES += controller/bench_cost.c controller/bench_decisions.c controller/bench_record.c controller/bench_replay.c
