// Kernels that nvcc made (kernels/*.cu, with the PTX beside them), against the host's results.
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/server/cuda/ptx_fixture.h"

namespace rgpu::server::ptx {
namespace {

class PtxPrograms : public PtxTest {
 protected:
  std::shared_ptr<Module> open(const std::string& name) {
    std::ifstream file(std::string(RGPU_PTX_KERNELS) + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_FALSE(text.str().empty()) << name;
    return load(text.str());
  }
  void expect_ok(const Fault& fault) { EXPECT_EQ(fault.code, 0) << fault.message; }
};

std::vector<float> some_floats(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 37 % 101)) / 8.0F - 5.0F;
  return values;
}

TEST_F(PtxPrograms, Saxpy) {
  const auto module = open("ordinary.ptx");
  const std::vector<float> x = some_floats(1000);
  const std::vector<float> y = some_floats(1000);
  const DeviceArray<float> dx(memory_, x);
  const DeviceArray<float> dy(memory_, y);
  expect_ok(launch(module, "saxpy", {.grid = {4, 1, 1}, .block = {256, 1, 1}}, 1000, 1.5F,
                   dx.address(), dy.address()));
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(dy[i], std::fma(1.5F, x[i], y[i]));
  EXPECT_GT(environment_.executed_lane_instructions, 1000U * 10);
}

TEST_F(PtxPrograms, TiledMatrixProduct) {
  const auto module = open("ordinary.ptx");
  constexpr int kN = 64;
  const std::vector<float> a = some_floats(kN * kN);
  const std::vector<float> b = some_floats(kN * kN);
  const DeviceArray<float> da(memory_, a);
  const DeviceArray<float> db(memory_, b);
  const DeviceArray<float> dc(memory_, kN * kN);
  expect_ok(launch(module, "matmul", {.grid = {4, 4, 1}, .block = {16, 16, 1}}, da.address(),
                   db.address(), dc.address(), kN));
  for (size_t i = 0; i < kN; ++i) {
    for (size_t j = 0; j < kN; ++j) {
      float sum = 0;
      for (size_t k = 0; k < kN; ++k) sum = std::fma(a[i * kN + k], b[k * kN + j], sum);
      ASSERT_EQ(dc[i * kN + j], sum);
    }
  }
}

TEST_F(PtxPrograms, ReductionByShuffles) {
  const auto module = open("ordinary.ptx");
  std::vector<int> in(10000);
  std::iota(in.begin(), in.end(), -300);
  const DeviceArray<int> din(memory_, in);
  const DeviceArray<int> out(memory_, 1);
  expect_ok(launch(module, "reduce", {.grid = {5, 1, 1}, .block = {128, 1, 1}, .shared = 16},
                   din.address(), out.address(), 10000));
  EXPECT_EQ(out[0], std::accumulate(in.begin(), in.end(), 0));
}

TEST_F(PtxPrograms, HistogramByAtomics) {
  const auto module = open("ordinary.ptx");
  std::vector<unsigned char> in(5000);
  std::vector<unsigned> expected(256);
  for (size_t i = 0; i < in.size(); ++i)
    ++expected[in[i] = static_cast<unsigned char>(i * i % 251)];
  const DeviceArray<unsigned char> din(memory_, in);
  const DeviceArray<unsigned> bins(memory_, 256);
  expect_ok(launch(module, "histogram", {.grid = {7, 1, 1}, .block = {96, 1, 1}}, din.address(),
                   bins.address(), 5000));
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(bins[i], expected[i]);
}

struct Settings {
  int bias;
  double scale;
  float weights[5];
};

TEST_F(PtxPrograms, StructByValueAndConstants) {
  const auto module = open("ordinary.ptx");
  const Settings settings = {7, 0.25, {1, 2, 3, 4, 5}};
  const DeviceArray<float> out(memory_, 64);
  expect_ok(launch(module, "settings", {.block = {64, 1, 1}}, out.address(), settings, 60));
  for (int i = 0; i < 64; ++i) {
    const double expected =
        settings.bias + settings.scale * i + settings.weights[i % 5] + (i & 3) + 1;
    EXPECT_FLOAT_EQ(out[static_cast<size_t>(i)], i < 60 ? static_cast<float>(expected) : 0.0F);
  }
}

TEST_F(PtxPrograms, Printf) {
  const auto module = open("ordinary.ptx");
  expect_ok(launch(module, "print", {.block = {64, 1, 1}}, 3));
  EXPECT_EQ(printed_,
            "thread 0 of 64:  0.00 zero a -5000000000 %\n"
            "thread 1 of 64:  0.25 one b -5000000000 %\n"
            "thread 2 of 64:  0.50 two c -5000000000 %\n");
}

TEST_F(PtxPrograms, CallsDirectIndirectAndRecursive) {
  const auto module = open("ordinary.ptx");
  const DeviceArray<int> numbers(memory_, 64);
  const DeviceArray<float> values(memory_, 64);
  expect_ok(launch(module, "calls", {.block = {64, 1, 1}}, numbers.address(), values.address()));
  const int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(numbers[i], fibonacci[i % 12]);
    const auto x = static_cast<float>(i);
    EXPECT_EQ(values[i], i % 2 == 0 ? 2 * x : x * x);
  }
}

TEST_F(PtxPrograms, LanesWaitForEachOther) {
  const auto module = open("ordinary.ptx");
  for (const char* kernel : {"spin_lock", "spin_lock_naive"}) {
    const DeviceArray<int> lock(memory_, 1);
    const DeviceArray<int> value(memory_, 1);
    expect_ok(launch(module, kernel, {.grid = {3, 1, 1}, .block = {64, 1, 1}}, lock.address(),
                     value.address()));
    EXPECT_EQ(value[0], 192);
  }
}

TEST_F(PtxPrograms, BlocksWaitForEachOther) {
  const auto module = open("ordinary.ptx");
  const DeviceArray<int> ready(memory_, 300);
  const DeviceArray<int> order(memory_, 300);
  expect_ok(launch(module, "chain", {.grid = {300, 1, 1}, .block = {32, 1, 1}}, ready.address(),
                   order.address()));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i + 1);
}

TEST_F(PtxPrograms, DivergedLanesMeet) {
  const auto module = open("ordinary.ptx");
  const DeviceArray<int> out(memory_, 32);
  expect_ok(launch(module, "diverged", {.block = {32, 1, 1}}, out.address()));
  int values[32];
  for (int i = 0; i < 32; ++i) values[i] = i % 2 == 0 ? i + i * (i - 1) / 2 : 3 * i;
  int sums[32];
  for (int i = 0; i < 32; ++i) sums[i] = values[i] + values[i ^ 1];
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(out[static_cast<size_t>(i)], i < 20 ? sums[i] + 7 : sums[i] - sums[25]) << i;
}

TEST_F(PtxPrograms, DeviceHeap) {
  const auto module = open("ordinary.ptx");
  const size_t before = memory_.count();
  {
    const DeviceArray<int*> pointers(memory_, 32);
    const DeviceArray<int> sums(memory_, 32);
    expect_ok(launch(module, "heap", {.block = {32, 1, 1}}, pointers.address(), sums.address()));
    for (int i = 0; i < 32; ++i) EXPECT_EQ(sums[static_cast<size_t>(i)], i * 63 * 64 / 2);
    EXPECT_NE(pointers[3], pointers[4]);
  }
  EXPECT_EQ(memory_.count(), before);
}

TEST_F(PtxPrograms, FaultsNameKernelAndThread) {
  const auto module = open("ordinary.ptx");
  const DeviceArray<int> out(memory_, 32);
  Fault fault = launch(module, "out_of_bounds", {.block = {32, 1, 1}}, out.address(), 5);
  EXPECT_EQ(fault.code, FaultCode::kIllegalAddress);
  EXPECT_NE(fault.message.find("out_of_bounds"), std::string::npos) << fault.message;
  EXPECT_NE(fault.message.find("thread (27,0,0)"), std::string::npos) << fault.message;
  EXPECT_EQ(launch(module, "trap_it", {.block = {32, 1, 1}}, 9).code, FaultCode::kLaunchFailed);
  EXPECT_EQ(launch(module, "trap_it", {.block = {32, 1, 1}}, 40).code, 0);
  EXPECT_EQ(launch(module, "assert_it", {.block = {32, 1, 1}}, 9).code, FaultCode::kAssert);
  EXPECT_NE(
      printed_.find("file.cu:42: assert_it: block: [0,0,0], thread: [9,0,0] Assertion `n` failed."),
      std::string::npos)
      << printed_;
}

}  // namespace
}  // namespace rgpu::server::ptx
