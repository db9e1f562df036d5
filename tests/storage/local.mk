# tests/storage/local.mk
