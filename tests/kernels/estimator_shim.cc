#include "kernels/estimator.cu"
