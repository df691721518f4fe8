// Kernels as programs have them. ordinary.ptx is made of this:
//   nvcc -ptx -arch=compute_75 -o ordinary.ptx ordinary.cu
#include <cstdio>

struct Settings {
  int bias;
  double scale;
  float weights[5];
};

__constant__ float coefficients[4] = {1, 2, 3, 4};
__device__ int counter;
__device__ const char* const names[3] = {"zero", "one", "two"};

extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[16][16];
  __shared__ float tile_b[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y;
  const int column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

extern "C" __global__ void reduce(const int* in, int* out, int n) {
  extern __shared__ int partial[];
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    int total = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) total += partial[i];
    atomicAdd(out, total);
  }
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[in[i]], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

extern "C" __global__ void settings(float* out, Settings s, int n) {
  const int i = threadIdx.x;
  if (i < n) out[i] = s.bias + s.scale * i + s.weights[i % 5] + coefficients[i & 3];
}

extern "C" __global__ void print(int n) {
  if (threadIdx.x < n) {
    printf("thread %d of %u: %5.2f %s %c %lld %%\n", threadIdx.x, blockDim.x, threadIdx.x / 4.0,
           names[threadIdx.x % 3], 'a' + threadIdx.x, -5000000000ll);
  }
}

__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__device__ __noinline__ float twice(float x) { return 2 * x; }
__device__ __noinline__ float square(float x) { return x * x; }
__device__ float (*functions[2])(float) = {twice, square};

extern "C" __global__ void calls(int* numbers, float* values) {
  numbers[threadIdx.x] = fibonacci(threadIdx.x % 12);
  values[threadIdx.x] = functions[threadIdx.x % 2](threadIdx.x);
}

// Lanes of one warp take a lock one after the other.
extern "C" __global__ void spin_lock(int* lock, int* value) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int*)value += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// The naive form: needs lanes that move independently of each other.
extern "C" __global__ void spin_lock_naive(int* lock, int* value) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *(volatile int*)value += 1;
  __threadfence();
  atomicExch(lock, 0);
}

// Each block waits for the one before it.
extern "C" __global__ void chain(volatile int* ready, int* order) {
  if (threadIdx.x == 0) {
    while (blockIdx.x != 0 && ready[blockIdx.x - 1] == 0) {
    }
    order[blockIdx.x] = blockIdx.x == 0 ? 1 : order[blockIdx.x - 1] + 1;
    __threadfence();
    ready[blockIdx.x] = 1;
  }
}

extern "C" __global__ void diverged(int* out) {
  const int lane = threadIdx.x;
  int value = lane;
  if (lane % 2 == 0) {
    for (int i = 0; i < lane; ++i) value += i;
  } else {
    value *= 3;
  }
  value += __shfl_xor_sync(0xffffffff, value, 1);
  if (lane < 20) {
    const unsigned mask = __ballot_sync(0x000fffff, lane % 3 == 0);
    value += __popc(mask);
  } else {
    __syncwarp(0xfff00000);
    value -= __shfl_sync(0xfff00000, value, 25);
  }
  out[lane] = value;
}

extern "C" __global__ void heap(int** pointers, int* sums) {
  int* mine = (int*)malloc(64 * sizeof(int));
  for (int i = 0; i < 64; ++i) mine[i] = i * threadIdx.x;
  int sum = 0;
  for (int i = 0; i < 64; ++i) sum += mine[i];
  sums[threadIdx.x] = sum;
  pointers[threadIdx.x] = mine;
  free(mine);
}

extern "C" __global__ void out_of_bounds(int* p, int n) { p[n + threadIdx.x] = 1; }
extern "C" __global__ void trap_it(int n) {
  if (threadIdx.x == n) __trap();
}
extern "C" __global__ void assert_it(int n) {
  if (threadIdx.x == n) __assert_fail("n", "file.cu", 42, "assert_it");
}
