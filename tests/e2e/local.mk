# tests/e2e/local.mk
