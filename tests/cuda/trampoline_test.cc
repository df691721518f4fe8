// The public libraries' trampolines, through functions that this program implements: a weak
// reference in libcublas.so.13 finds rgpu_<name> here as it finds those of librgpu_cuda.so.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "cuda_shim/client/api_calls.h"

namespace {

using Words = std::array<int64_t, 18>;
Words g_words;
std::array<double, 10> g_numbers;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the libraries' names.
extern "C" {

// Eighteen words: six in registers, twelve on the stack.
#define RGPU_WORDS(f)                                                                    \
  int64_t f(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t g, int64_t h, \
            int64_t i, int64_t j, int64_t k, int64_t l, int64_t m, int64_t n, int64_t o, \
            int64_t p, int64_t q, int64_t r, int64_t s)
RGPU_WORDS(cublasZgemmStridedBatched_64);
__attribute__((visibility("default"))) RGPU_WORDS(rgpu_cublasZgemmStridedBatched_64) {
  g_words = {a, b, c, d, e, g, h, i, j, k, l, m, n, o, p, q, r, s};
  return 77;
}
#undef RGPU_WORDS

// The signature is this test's: only that registers survive matters here.
double cublasZdgmm_64(double a, double b, double c, double d, double e, double f, double g,
                      double h, double i, double j);
__attribute__((visibility("default"))) double rgpu_cublasZdgmm_64(double a, double b, double c,
                                                                  double d, double e, double f,
                                                                  double g, double h, double i,
                                                                  double j) {
  g_numbers = {a, b, c, d, e, f, g, h, i, j};
  return 0.5;
}

// As cublas.h has them; nobody implements these.
float cublasSdot(int n, const float* x, int incx, const float* y, int incy);
const char* nvmlErrorString(int result);
}
// NOLINTEND(readability-identifier-naming)

namespace {

uint64_t calls_of(const char* name) {
  static constexpr const char* kNames[] = {
#define RGPU_API(library, name, result) name,
#include "cuda_shim/generated/api_names.inc"
#undef RGPU_API
  };
  for (size_t slot = 0; slot < std::size(kNames); ++slot) {
    if (std::strcmp(kNames[slot], name) == 0) {
      return std::atomic_ref<uint64_t>(rgpu_api_calls[slot]).load();
    }
  }
  return 0;
}

TEST(Trampoline, ArgumentsAndResultPassUnchanged) {
  EXPECT_EQ(
      cublasZgemmStridedBatched_64(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, -18),
      77);
  EXPECT_EQ(g_words, (Words{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, -18}));
  EXPECT_EQ(cublasZdgmm_64(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 0.5);
  EXPECT_EQ(g_numbers, (std::array<double, 10>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(Trampoline, CountsLoseNothingBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 20000;
  const uint64_t before = calls_of("nvmlErrorString");
  const uint64_t others = calls_of("cublasZdgmm_64");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kCalls; ++i) nvmlErrorString(0);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls_of("nvmlErrorString") - before, uint64_t{kThreads} * kCalls);
  EXPECT_EQ(calls_of("cublasZdgmm_64"), others);
}

TEST(Trampoline, WithoutAnImplementationItNamesTheFunctionOnce) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cublasSdot(1, nullptr, 1, nullptr, 1), 0.0F);
  EXPECT_EQ(cublasSdot(1, nullptr, 1, nullptr, 1), 0.0F);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rgpu: cublasSdot (libcublas) is not supported\n");
  EXPECT_STREQ(nvmlErrorString(0), "not supported by rgpu");
}

}  // namespace
