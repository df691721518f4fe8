// The same compiled for compute capability 8.0, for which CUB chooses other ways.
// Arch: 80
#include "cub_algorithms.cu"
