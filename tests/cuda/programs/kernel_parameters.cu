// Parameters of every size and alignment, each compared byte for byte with what the caller passed:
// scalars, vectors, structs aligned to 16 and 64, arrays in structs, empty ones, enumerations.
#include <cstring>
#include <type_traits>
#include <vector>

#include "check.h"

struct Empty {};
// No byte is padding: what a copy of a struct does to that is nobody's promise.
struct Mixed {
  char c[8];
  double d;
  short s[2];
  float f[3];
  long long q;
  char tail[8];
};
struct alignas(16) Wide {
  float v[4];
  unsigned char rest[16];
};
struct alignas(64) Line {
  long long first;
  char rest[120];
};
struct Nested {
  char first[16];
  Wide wide;
  Mixed mixed[2];
};
struct Odd {
  char bytes[3];
};
struct Tall {
  int numbers[1500];  // With it the parameters are beyond 4 KiB.
};
enum class Small : unsigned char { kA = 1, kB = 200 };

template <typename T>
constexpr int kBytes = std::is_empty_v<T> ? 0 : sizeof(T);

__device__ void put(unsigned char* out, int* at, const void* value, int size) {
  for (int i = 0; i < size; i++) out[(*at)++] = ((const unsigned char*)value)[i];
}
template <typename... T>
__global__ void copy(unsigned char* out, T... values) {
  int at = 0;
  (put(out, &at, &values, kBytes<T>), ...);
}

template <typename T>
static T made(int seed) {
  T value;
  unsigned char bytes[sizeof value];
  for (size_t i = 0; i < sizeof value; i++) bytes[i] = (unsigned char)(seed * 31 + i * 7 + 1);
  memcpy((void*)&value, bytes, sizeof value);
  return value;
}
template <>
bool made(int seed) {
  return seed % 2;
}

template <typename... T>
static void pass_all(unsigned char* device) {
  for (int round = 0; round < 2; round++) {
    std::vector<unsigned char> want, got;
    int seed = round;
    auto run = [&](T... values) {
      (want.insert(want.end(), (unsigned char*)&values, (unsigned char*)&values + kBytes<T>), ...);
      if (round == 0) {
        copy<T...><<<1, 1>>>(device, values...);
      } else {
        void* arguments[] = {&device, &values...};
        OK(cudaLaunchKernel((const void*)copy<T...>, dim3(1), dim3(1), arguments, 0, nullptr));
      }
      // They are the caller's again.
      (memset((void*)&values, 0, sizeof values), ...);
    };
    run(made<T>(seed++)...);
    OK(cudaGetLastError());
    got.resize(want.size());
    OK(cudaMemcpy(got.data(), device, got.size(), cudaMemcpyDeviceToHost));
    CHECK(got == want);
  }
}

int main() {
  unsigned char* device;
  OK(cudaMalloc(&device, 16384));
  pass_all<char>(device);
  pass_all<char, short, int, long long, float, double, bool, int*>(device);
  pass_all<double, char, float4, char, double2, uchar3, short2, int3, long long>(device);
  pass_all<Odd, Odd, Wide, Odd, Line, Odd, Mixed, Odd>(device);
  pass_all<char, Nested, Small, Empty, Line, short, Wide, bool>(device);
  pass_all<Line, Line, char, Line>(device);
  pass_all<char, Tall, Line, short, Wide>(device);
  pass_all<int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, char,
           int, char, double, char, float, char, short, char, Odd, char, int*>(device);
  OK(cudaFree(device));
  return pass();
}
