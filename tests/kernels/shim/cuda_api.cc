#include "kernels/cuda_api.cu"
