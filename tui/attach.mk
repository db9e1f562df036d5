# tui/attach.mk - engines without a daemon, what a page of metrics says, and the view of a whole fleet.
tui_libtui_la_SOURCES += \
	tui/attach.c tui/attach.h \
	tui/program.c tui/program.h \
	tui/verb_inspect.c \
	tui/view_fleet.c
tui_libtui_la_CFLAGS += $(CURL_CFLAGS) -DSBINDIR='"$(sbindir)"'
tui_libtui_la_LIBADD += controller/libengine.la
