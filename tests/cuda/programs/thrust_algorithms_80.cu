// The same compiled for compute capability 8.0, for which Thrust chooses other ways.
// Arch: 80
#include "thrust_algorithms.cu"
