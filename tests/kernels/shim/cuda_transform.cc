#include "kernels/cuda_transform.cu"
