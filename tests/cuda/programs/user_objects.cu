// A counted object of the program's is destroyed once, when its last reference is released, and not
// before.
#include <atomic>
#include <thread>

#include "check.h"

static std::atomic<int> destroyed{0};
static void CUDART_CB destroy(void* data) { destroyed += *static_cast<int*>(data); }

// The destructor may run on a thread of CUDA's.
static void expect(int count) {
  for (int i = 0; i < 1000 && destroyed != count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(destroyed == count);
}

int main() {
  OK(cudaFree(nullptr));
  int one = 1, ten = 10;
  cudaUserObject_t a, b;
  OK(cudaUserObjectCreate(&a, &one, destroy, 1, cudaUserObjectNoDestructorSync));
  OK(cudaUserObjectCreate(&b, &ten, destroy, 3, cudaUserObjectNoDestructorSync));
  OK(cudaUserObjectRetain(a, 2));
  OK(cudaUserObjectRelease(a, 1));
  OK(cudaUserObjectRelease(b, 2));
  OK(cudaUserObjectRelease(a, 1));
  CHECK(destroyed == 0);
  OK(cudaUserObjectRelease(a, 1));
  expect(1);
  OK(cudaUserObjectRetain(b, 1));
  OK(cudaUserObjectRelease(b, 2));
  expect(11);
  GIVES(cudaErrorInvalidValue,
        cudaUserObjectCreate(&a, &one, nullptr, 1, cudaUserObjectNoDestructorSync));
  GIVES(cudaErrorInvalidValue,
        cudaUserObjectCreate(&a, &one, destroy, 0, cudaUserObjectNoDestructorSync));
  GIVES(cudaErrorInvalidValue, cudaUserObjectCreate(&a, &one, destroy, 1, 0));
  CHECK(destroyed == 11);
  return pass();
}
