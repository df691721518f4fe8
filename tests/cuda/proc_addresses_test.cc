#include "cuda_shim/client/proc_addresses.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cuda_shim/client/api_calls.h"

namespace rgpu::cuda {
namespace {

// An address is told apart by what it counts as when it is called.
std::string counted_as(void* address) {
  const auto calls = api_calls();
  reinterpret_cast<int (*)(void*, void*, void*, void*)>(address)(nullptr, nullptr, nullptr,
                                                                 nullptr);
  for (const auto& call : api_calls()) {
    uint64_t old = 0;
    for (const auto& was : calls) {
      if (std::strcmp(was.name, call.name) == 0) old = was.count;
    }
    if (call.count != old) return call.name;
  }
  return "";
}

std::string symbol(const char* name, int version, bool per_thread = false) {
  const ProcAddress answer = proc_address(name, version, per_thread);
  return answer.found == ProcFound::kFound ? counted_as(answer.address) : "";
}

TEST(ProcAddress, TheNewestFormThatIsNotNewerThanAsked) {
  EXPECT_EQ(symbol("cuEventElapsedTime", 12070), "cuEventElapsedTime");
  EXPECT_EQ(symbol("cuEventElapsedTime", 12080), "cuEventElapsedTime_v2");
  EXPECT_EQ(symbol("cuEventElapsedTime", 99000), "cuEventElapsedTime_v2");
  EXPECT_EQ(symbol("cuCtxCreate", 11030), "cuCtxCreate_v2");
  EXPECT_EQ(symbol("cuCtxCreate", 11040), "cuCtxCreate_v3");
  EXPECT_EQ(symbol("cuCtxCreate", 13000), "cuCtxCreate_v4");
}

TEST(ProcAddress, PerThreadFormsWhereThereAreSome) {
  EXPECT_EQ(symbol("cuMemsetD32Async", 13000, true), "cuMemsetD32Async_ptsz");
  EXPECT_EQ(symbol("cuMemcpyHtoD", 13000, true), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(symbol("cuMemcpyHtoD", 13000, false), "cuMemcpyHtoD_v2");
  EXPECT_EQ(symbol("cuMemcpyHtoD", 6000, true), "cuMemcpyHtoD_v2");
  EXPECT_EQ(symbol("cuEventDestroy", 13000, true), "cuEventDestroy_v2");
}

TEST(ProcAddress, ReasonsForNone) {
  EXPECT_EQ(proc_address("cuNoSuchThing", 13000, false).found, ProcFound::kUnknownName);
  EXPECT_EQ(proc_address("", 13000, false).found, ProcFound::kUnknownName);
  EXPECT_EQ(proc_address("cuLaunchKernelEx", 11050, false).found, ProcFound::kVersionTooOld);
  EXPECT_EQ(proc_address("cuLaunchKernelEx", 11050, false).address, nullptr);
}

TEST(ProcAddress, AnExportsOwnNameIsFoundToo) {
  EXPECT_EQ(symbol("cuEventDestroy_v2", 1, false), "cuEventDestroy_v2");
}

}  // namespace
}  // namespace rgpu::cuda
