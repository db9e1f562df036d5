# tests/controller/local.mk
