# tests/kernels/estimator.mk - tests of the estimators and of allocation; included by tests/kernels/local.mk.
