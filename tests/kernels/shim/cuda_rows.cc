#include "kernels/cuda_rows.cu"
