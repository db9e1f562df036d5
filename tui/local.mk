# tui/local.mk - trimtab: the console and the verbs. libtui is all but main, so that tests link it.
bin_PROGRAMS += trimtab
noinst_LTLIBRARIES += tui/libtui.la

tui_libtui_la_SOURCES = \
	tui/chart.c tui/chart.h \
	tui/collector.c tui/collector.h \
	tui/keys.c tui/keys.h \
	tui/layout.c tui/layout.h \
	tui/model.c tui/model.h \
	tui/options.c tui/options.h \
	tui/scheme.c tui/scheme.h \
	tui/screen.c tui/screen.h \
	tui/script.c tui/script.h \
	tui/series.c tui/series.h \
	tui/session.c tui/session.h \
	tui/terminal.c tui/terminal.h \
	tui/text.c tui/text.h \
	tui/ui.c tui/ui.h tui/ui_state.h tui/ui_act.c tui/ui_draw.c tui/ui_list.c \
	tui/verb_ab.c tui/verb_control.c tui/verb_once.c tui/verb_store.c tui/verbs.c tui/verbs.h \
	tui/view_cost.c tui/view_estimator.c tui/view_lists.c tui/view_overview.c tui/view_settings.c \
	tui/when.c tui/when.h
tui_libtui_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(NCURSES_CFLAGS)
tui_libtui_la_LIBADD = controller/libclient.la storage/libstorage.la $(JANSSON_LIBS) $(NCURSES_LIBS)

trimtab_SOURCES = tui/main.c
trimtab_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
trimtab_LDADD = tui/libtui.la

include tui/attach.mk
