#include "kernels/cuda_verify.cu"
