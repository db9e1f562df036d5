# tests/controller/plan.mk - tests of the cost model, the planner and n-gram drafts.
plan_libs = controller/libplan.la kernels/libtrimtab_core.la $(JANSSON_LIBS)

if HAVE_CMOCKA
plan_tests = \
	tests/controller/test_acceptance \
	tests/controller/test_cost \
	tests/controller/test_law_planner \
	tests/controller/test_ngram \
	tests/controller/test_planner
check_PROGRAMS += $(plan_tests)
TESTS += $(plan_tests)
plan_test_cflags = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
plan_test_libs = $(plan_libs) $(CMOCKA_LIBS)

tests_controller_test_acceptance_SOURCES = tests/controller/test_acceptance.c
tests_controller_test_acceptance_CFLAGS = $(plan_test_cflags)
tests_controller_test_acceptance_LDADD = $(plan_test_libs)
tests_controller_test_cost_SOURCES = tests/controller/test_cost.c
tests_controller_test_cost_CFLAGS = $(plan_test_cflags)
tests_controller_test_cost_LDADD = $(plan_test_libs)
tests_controller_test_law_planner_SOURCES = tests/controller/test_law_planner.c \
	tests/kernels/law_world.c tests/kernels/law_world.h
tests_controller_test_law_planner_CFLAGS = $(plan_test_cflags)
tests_controller_test_law_planner_LDADD = tests/kernels/libenumerate.la $(plan_test_libs)
tests_controller_test_ngram_SOURCES = tests/controller/test_ngram.c
tests_controller_test_ngram_CFLAGS = $(plan_test_cflags)
tests_controller_test_ngram_LDADD = $(plan_test_libs)
tests_controller_test_planner_SOURCES = tests/controller/test_planner.c
tests_controller_test_planner_CFLAGS = $(plan_test_cflags)
tests_controller_test_planner_LDADD = $(plan_test_libs)
endif
