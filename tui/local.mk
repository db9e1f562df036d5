# tui/local.mk
