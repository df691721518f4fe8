#include "tests/wire/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace rgpu {
namespace {
std::atomic<uint64_t> count{0};
}  // namespace

uint64_t allocation_count() noexcept { return count.load(std::memory_order_relaxed); }

}  // namespace rgpu

// A file of its own, so that the compiler cannot inline one of the pair and not the other.
void* operator new(size_t size_bytes) {
  rgpu::count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size_bytes == 0 ? 1 : size_bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
