# tests/tui/local.mk
