# tui/attach.mk - engines without a daemon: the private one, and what a page of metrics says.
tui_libtui_la_SOURCES += \
	tui/attach.c tui/attach.h \
	tui/program.c tui/program.h \
	tui/verb_inspect.c
tui_libtui_la_CFLAGS += $(CURL_CFLAGS) -DSBINDIR='"$(sbindir)"'
tui_libtui_la_LIBADD += controller/libengine.la
