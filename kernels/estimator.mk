# kernels/estimator.mk - estimators and allocation; included by kernels/local.mk.
