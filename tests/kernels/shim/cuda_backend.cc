#include "kernels/cuda_backend.cu"
