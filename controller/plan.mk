# controller/plan.mk - cost model, planner, n-gram drafts.
noinst_LTLIBRARIES += controller/libplan.la
controller_libplan_la_SOURCES = \
	controller/acceptance.c controller/acceptance.h \
	controller/cost.c controller/cost.h controller/cost_cells.h \
	controller/cause.c controller/cause.h \
	controller/cost_file.c \
	controller/given.c controller/given.h \
	controller/ngram.c controller/ngram.h \
	controller/planner.c controller/planner.h controller/planner_internal.h \
	controller/planner_regime.c \
	controller/planner_value.c
controller_libplan_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
