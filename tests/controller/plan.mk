# tests/controller/plan.mk - tests of the cost model, the planner and n-gram drafts.
plan_libs = controller/libplan.la kernels/libtrimtab_core.la $(JANSSON_LIBS)

check_PROGRAMS += tests/controller/replay_traces
TESTS += tests/controller/replay_traces
tests_controller_replay_traces_SOURCES = tests/controller/replay_traces.c tests/controller/replay.c tests/controller/replay.h
tests_controller_replay_traces_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_controller_replay_traces_LDADD = $(plan_libs)
EXTRA_DIST += \
	tests/controller/data/traces/chat-t0.txt.gz tests/controller/data/traces/chat-t1.0.txt.gz \
	tests/controller/data/traces/code-t0.txt.gz tests/controller/data/traces/code-t1.0.txt.gz \
	tests/controller/data/traces/json-t0.txt.gz tests/controller/data/traces/json-t1.0.txt.gz \
	tests/controller/data/traces/cost-bf16.txt tests/controller/data/traces/cost-flat.txt \
	tests/controller/data/traces/cost-q4_0.txt tests/controller/data/traces/cost-q8_0.txt

if HAVE_CMOCKA
check_PROGRAMS += tests/controller/test_cost
TESTS += tests/controller/test_cost
tests_controller_test_cost_SOURCES = tests/controller/test_cost.c
tests_controller_test_cost_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_controller_test_cost_LDADD = $(plan_libs) $(CMOCKA_LIBS)

check_PROGRAMS += tests/controller/test_law_planner
TESTS += tests/controller/test_law_planner
tests_controller_test_law_planner_SOURCES = tests/controller/test_law_planner.c \
	tests/kernels/law_world.c tests/kernels/law_world.h
tests_controller_test_law_planner_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_controller_test_law_planner_LDADD = tests/kernels/libenumerate.la $(plan_libs) $(CMOCKA_LIBS)
endif
