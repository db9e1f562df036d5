# tests/kernels/local.mk
