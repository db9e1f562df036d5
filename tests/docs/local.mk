# tests/docs/local.mk
dist_check_SCRIPTS += tests/docs/docs.test
TESTS += tests/docs/docs.test
