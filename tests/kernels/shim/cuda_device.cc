#include "kernels/cuda_device.cu"
