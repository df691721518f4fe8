// The real driver over our own libcuda.so.1, which asks a second server for an emulated device. So
// all but NVIDIA's driver itself is what runs on a GPU.

#include "server/cuda/real_driver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <numeric>
#include <sstream>

#include "tests/server/server_process.h"
#include "wire/stream.h"

namespace rgpu::server::cuda {
namespace {

namespace calls = wire::cuda;
using namespace std::chrono_literals;

constexpr uint64_t kRangeSizeBytes = uint64_t{64} << 30;
constexpr uint32_t kLegacy = wire::stream_of(0, 0);
constexpr uint32_t kFirst = wire::stream_of(0, 1);
constexpr uint32_t kSecond = wire::stream_of(0, 2);
constexpr auto kDeadline = 30s;
constexpr uint32_t kModule = 1;
constexpr uint64_t kMiB = uint64_t{1} << 20;

template <typename T>
Bytes bytes_of(std::vector<T> values) {
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return {std::as_bytes(std::span(*owner)), owner};
}

template <typename... Values>
std::vector<std::byte> packed(const Values&... values) {  // Each at a multiple of its size.
  std::vector<std::byte> bytes;
  const auto add = [&](const auto& value) {
    bytes.resize((bytes.size() + sizeof value - 1) / sizeof value * sizeof value);
    const auto raw = std::as_bytes(std::span(&value, 1));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  (add(values), ...);
  return bytes;
}

// What a callback was given, once it came.
template <typename T>
class Awaited {
 public:
  [[nodiscard]] auto callback() {
    return [promise = promise_](const Outcome& outcome, auto... rest) {
      promise->set_value({outcome, T{rest...}});
    };
  }
  [[nodiscard]] bool is_ready() { return future_.wait_for(0s) == std::future_status::ready; }
  [[nodiscard]] std::pair<Outcome, T> get() {
    if (future_.wait_for(kDeadline) != std::future_status::ready) {
      return {{-1, "the callback did not come"}, T{}};
    }
    return future_.get();
  }

 private:
  using Promise = std::promise<std::pair<Outcome, T>>;
  std::shared_ptr<Promise> promise_ = std::make_shared<Promise>();
  std::future<std::pair<Outcome, T>> future_ = promise_->get_future();
};
struct Nothing {};

class RealDriverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new testing::ServerProcess({"--cuda", "emulated"});
    const std::string address = "127.0.0.1:" + std::to_string(server_->port());
    setenv("RGPU_OPSERVER", address.c_str(), 1);
    setenv("RGPU_CUDA_DRIVER_LIBRARY", RGPU_LIBCUDA, 1);
  }
  static void TearDownTestSuite() { delete server_; }

  void SetUp() override {
    Result<std::unique_ptr<Driver>> made = make_real_driver();
    ASSERT_TRUE(made) << made.error().message();
    driver_ = *std::move(made);
    driver_->on_print([this](std::string_view text) {
      const std::lock_guard lock(print_mutex_);
      printed_ += text;
      std::fwrite(text.data(), 1, text.size(), stderr);  // Also what gtest says meanwhile.
    });
    wire::CudaHello hello;
    hello.address_bases = {uint64_t{1} << 40,
                           free_base()};  // The first is in use here, or not ours.
    hello.address_size_bytes = kRangeSizeBytes;
    const Result<wire::CudaInfo> info = driver_->open(hello);
    ASSERT_TRUE(info) << info.error().message();
    info_ = *info;
    next_ = info_.address_base;
  }

  // Where a range may begin, by asking the driver for one.
  static uint64_t free_base() {
    const Result<DriverSymbols> driver = load_driver_symbols();
    CuContext context = nullptr;
    uint64_t base = 0;
    const uint64_t size_bytes = calls::client_part_size_bytes(kRangeSizeBytes);
    if (!driver || driver->init(0) != 0 || driver->retain_context(&context, 0) != 0) return 0;
    (void)driver->set_context(context);
    (void)driver->reserve(&base, size_bytes, 0, 0, 0);
    (void)driver->unreserve(base, size_bytes);
    (void)driver->release_context(0);
    return base;
  }
  uint64_t allocate(uint64_t size_bytes) {
    const uint64_t address = next_;
    next_ += (size_bytes + 511) / 512 * 512;
    const Outcome outcome = driver_->allocate(address, size_bytes);
    EXPECT_TRUE(outcome.ok()) << outcome.code << outcome.message;
    return address;
  }
  template <typename T>
  uint64_t uploaded(std::vector<T> values, uint32_t stream = kLegacy) {
    const uint64_t size_bytes = values.size() * sizeof(T);
    const uint64_t address = allocate(size_bytes);
    expect_ok(driver_->upload(stream, bytes_of(std::move(values)),
                              {address, size_bytes, size_bytes}, {size_bytes, 1, 1}));
    return address;
  }
  template <typename T>
  std::vector<T> downloaded(uint64_t address, size_t count, uint32_t stream = kLegacy) {
    const uint64_t size_bytes = count * sizeof(T);
    return downloaded<T>({address, size_bytes, size_bytes}, {size_bytes, 1, 1}, stream);
  }
  template <typename T>
  std::vector<T> downloaded(const calls::Box& box, const calls::Extent& extent,
                            uint32_t stream = kLegacy) {
    Awaited<Bytes> awaited;
    driver_->download(stream, box, extent, awaited.callback());
    const auto [outcome, bytes] = awaited.get();
    expect_ok(outcome);
    std::vector<T> values(bytes.bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.bytes.data(), bytes.bytes.size());
    return values;
  }
  void load(const char* file = "driver_kernels.ptx") {
    std::ifstream stream(std::string(RGPU_CUDA_FIXTURES "/") + file, std::ios::binary);
    std::stringstream text;
    text << stream.rdbuf();
    const std::string all = text.str();
    ASSERT_FALSE(all.empty());
    expect_ok(
        driver_->load_module(kModule, 0, bytes_of(std::vector<char>(all.begin(), all.end()))));
  }
  uint32_t function(std::string_view name) {
    expect_ok(driver_->get_function(++functions_, kModule, name));
    return functions_;
  }
  Outcome launch(uint32_t stream, uint32_t function, uint32_t grid, uint32_t block,
                 const std::vector<std::byte>& parameters, uint32_t flags = 0) {
    calls::Launch launch;
    launch.function = function;
    launch.grid[0] = grid;
    launch.block[0] = block;
    launch.flags = flags;
    return driver_->launch(stream, launch, parameters);
  }
  static void expect_ok(const Outcome& outcome) {
    EXPECT_TRUE(outcome.ok()) << outcome.code << " " << outcome.message;
  }
  void finish() {
    Awaited<Nothing> all;
    driver_->when_all_done(all.callback());
    expect_ok(all.get().first);
  }

  static inline testing::ServerProcess* server_ = nullptr;
  std::mutex print_mutex_;
  std::string printed_;
  std::unique_ptr<Driver> driver_;  // Ends before what it prints to.
  wire::CudaInfo info_;
  uint64_t next_ = 0;
  uint32_t functions_ = 0;
};

TEST_F(RealDriverTest, TellsDevicesAndTakesARangeOfTheClients) {
  EXPECT_GE(info_.driver_version, 12000);
  EXPECT_FALSE(info_.emulated);
  EXPECT_NE(info_.address_base, 0u);
  EXPECT_EQ(info_.address_size_bytes, kRangeSizeBytes);
  ASSERT_EQ(info_.devices.size(), 1u);
  const wire::CudaDevice& device = info_.devices.front();
  EXPECT_EQ(device.name, "rgpu emulated device");
  EXPECT_EQ(device.uuid.size(), 16u);
  EXPECT_GT(device.memory_size_bytes, kMiB);
  ASSERT_EQ(device.attributes.size(), 148u);
  EXPECT_EQ(device.attributes[75] * 10 + device.attributes[76], 89);
  EXPECT_EQ(device.attributes[1], 1024);
  EXPECT_EQ(device.attributes[19], 0) << "host memory is another machine's";
}

TEST_F(RealDriverTest, NoRangeThatIsFreeHereIsSaid) {
  Result<std::unique_ptr<Driver>> other = make_real_driver();
  ASSERT_TRUE(other);
  const Result<wire::CudaInfo> info =
      (*other)->open({{info_.address_base, uint64_t{1} << 40}, kRangeSizeBytes});
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code(), Code::kExhausted);
}

TEST_F(RealDriverTest, RunsAKernelOnWhatWasUploaded) {
  load();
  constexpr int kCount = 1 << 20;  // Copies of several pieces.
  std::vector<float> a(kCount);
  std::vector<float> b(kCount);
  std::iota(a.begin(), a.end(), 0.0f);
  std::iota(b.begin(), b.end(), 0.5f);
  const uint64_t sum = allocate(kCount * sizeof(float));
  const auto parameters = packed(uploaded(a), uploaded(b), sum, kCount);
  expect_ok(launch(kLegacy, function("vec_add"), kCount / 256, 256, parameters));
  const std::vector<float> result = downloaded<float>(sum, kCount);
  for (int i = 0; i < kCount; i += 997) {
    ASSERT_EQ(result[static_cast<size_t>(i)],
              a[static_cast<size_t>(i)] + b[static_cast<size_t>(i)]);
  }
}

TEST_F(RealDriverTest, SmallAllocationsShareAPage) {
  const uint64_t first = uploaded(std::vector<int>{1, 2, 3});
  const uint64_t second = uploaded(std::vector<int>{4, 5, 6});
  EXPECT_LT(second - first, 2 * kMiB);
  expect_ok(driver_->free(first));
  finish();
  EXPECT_EQ(downloaded<int>(second, 3), (std::vector<int>{4, 5, 6}));
  expect_ok(driver_->allocate(first, 12));
  EXPECT_EQ(driver_->allocate(second, 12).code, kInvalidValue) << "in use";
  expect_ok(driver_->free(second));
  EXPECT_EQ(driver_->free(second).code, kInvalidValue);
  EXPECT_EQ(driver_->allocate(info_.address_base - 512, 12).code, kInvalidValue);
  EXPECT_EQ(driver_->allocate(info_.address_base + kRangeSizeBytes / 8 * 7, 12).code,
            kInvalidValue);
  finish();
}

TEST_F(RealDriverTest, FreedAddressesAreUsedAgainInOtherSizes) {
  const uint64_t large = allocate(64 * kMiB);
  for (int round = 0; round < 20; ++round) {
    const uint64_t size_bytes = (round % 3 == 0 ? 5 : 40) * kMiB;
    expect_ok(driver_->free(large));
    expect_ok(driver_->allocate(large, size_bytes));
    expect_ok(
        driver_->memset(kLegacy, {{large, size_bytes, size_bytes}, {size_bytes, 1, 1}, 7, 1}));
    EXPECT_EQ(downloaded<unsigned char>(large + size_bytes - 1, 1).front(), 7);
  }
}

TEST_F(RealDriverTest, WhatComesAfterAFreeWaitsForWhatCameBefore) {
  load();
  expect_ok(driver_->create_stream(kFirst, {calls::CreateStream::kNonBlocking, 0}));
  expect_ok(driver_->create_stream(kSecond, {calls::CreateStream::kNonBlocking, 0}));
  const uint64_t flag = uploaded(std::vector<int>{0});
  const uint64_t memory = uploaded(std::vector<int>{0, 0, 0, 0});
  finish();
  const uint32_t wait_for = function("wait_for");
  const uint32_t add = function("add_to_each");
  // The first stream holds until the flag is set, and then writes to the memory.
  expect_ok(launch(kFirst, wait_for, 1, 1, packed(flag, 1)));
  expect_ok(launch(kFirst, add, 1, 4, packed(memory, 4, 100)));
  // The other one sets the flag. Its work after the free is on the same memory, allocated again.
  expect_ok(driver_->memset(kSecond, {{flag, 4, 4}, {4, 1, 1}, 1, 4}));
  expect_ok(driver_->free(memory));
  expect_ok(driver_->allocate(memory, 16));
  expect_ok(driver_->memset(kSecond, {{memory, 16, 16}, {16, 1, 1}, 5, 4}));
  EXPECT_EQ(downloaded<int>(memory, 4, kSecond), (std::vector<int>{5, 5, 5, 5}));
}

TEST_F(RealDriverTest, CopiesBoxes) {
  std::vector<unsigned char> packed_bytes(24 * 5 * 3);
  std::iota(packed_bytes.begin(), packed_bytes.end(), static_cast<unsigned char>(1));
  const calls::Extent extent{24, 5, 3};
  // Slices that are whole rows apart, and such that are not.
  for (const uint64_t slice_pitch : {64u * 8u, 64u * 8u + 32u}) {
    const uint64_t memory = allocate(slice_pitch * 3);
    const uint64_t other = allocate(slice_pitch * 3);
    const calls::Box box{memory + 4, 64, slice_pitch};
    const calls::Box target{other + 8, 32, 32 * 5};
    expect_ok(driver_->memset(
        kLegacy, {{memory, slice_pitch * 3, slice_pitch * 3}, {slice_pitch * 3, 1, 1}, 0xee, 1}));
    expect_ok(driver_->upload(kLegacy, bytes_of(packed_bytes), box, extent));
    EXPECT_EQ(downloaded<unsigned char>(box, extent), packed_bytes);
    EXPECT_EQ(downloaded<unsigned char>(memory + 4 + 24, 1).front(), 0xee) << "beside a row";
    expect_ok(driver_->copy(kLegacy, {box, target, extent}));
    EXPECT_EQ(downloaded<unsigned char>(target, extent), packed_bytes);
  }
}

TEST_F(RealDriverTest, FillsBoxesOfEachUnit) {
  const uint64_t memory = allocate(4096);
  for (const uint32_t unit : {1u, 2u, 4u}) {
    expect_ok(driver_->memset(kLegacy, {{memory, 4096, 4096}, {4096, 1, 1}, 0, 1}));
    expect_ok(driver_->memset(kLegacy, {{memory, 64, 1024}, {8, 3, 2}, 0x04030201, unit}));
    const auto bytes = downloaded<unsigned char>(memory, 4096);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool inside = i % 64 < 8 && i % 1024 < 3 * 64 && i < 2048;
      ASSERT_EQ(bytes[i], inside ? i % unit + 1 : 0) << i << " of unit " << unit;
    }
  }
}

TEST_F(RealDriverTest, EventsOrderStreamsAndTellTheTime) {
  load();
  expect_ok(driver_->create_stream(kFirst, {calls::CreateStream::kNonBlocking, 0}));
  expect_ok(driver_->create_stream(kSecond, {calls::CreateStream::kNonBlocking, 0}));
  const uint64_t flag = uploaded(std::vector<int>{0, 0});
  finish();
  expect_ok(driver_->record_event(kFirst, 1));
  expect_ok(launch(kFirst, function("wait_for"), 1, 1, packed(flag, 1)));
  expect_ok(driver_->record_event(kFirst, 2));
  Awaited<int64_t> before;
  Awaited<int64_t> after;
  driver_->when_reached(2, after.callback());
  driver_->when_reached(1, before.callback());
  const auto [reached, begin_ns] = before.get();
  expect_ok(reached);
  EXPECT_FALSE(after.is_ready());
  // Behind the event: only once the flag, which a third stream sets, lets the first one go on.
  expect_ok(driver_->wait_event(kSecond, 2));
  expect_ok(driver_->memset(kSecond, {{flag + 4, 4, 4}, {4, 1, 1}, 2, 4}));
  const uint32_t third = wire::stream_of(0, 3);
  expect_ok(driver_->create_stream(third, {calls::CreateStream::kNonBlocking, 0}));
  EXPECT_EQ(downloaded<int>(flag + 4, 1, third).front(), 0);
  expect_ok(driver_->memset(third, {{flag, 4, 4}, {4, 1, 1}, 1, 4}));
  EXPECT_EQ(downloaded<int>(flag + 4, 1, kSecond).front(), 2);
  const auto [ended, end_ns] = after.get();
  expect_ok(ended);
  EXPECT_GE(end_ns, begin_ns);
  driver_->free_event(1);
  Awaited<int64_t> unknown;
  driver_->when_reached(1, unknown.callback());
  EXPECT_EQ(unknown.get().first.code, kInvalidHandle);
}

TEST_F(RealDriverTest, AGateHoldsItsStreamAndNotTheCaller) {
  load();
  const uint32_t add = function("add_to_each");
  const uint64_t counter = uploaded(std::vector<int>{0});
  Awaited<Nothing> reached;
  driver_->gate(kFirst, 77, reached.callback());
  expect_ok(reached.get().first);
  // More than CUDA would take, and a module, whose loading waits for the device.
  constexpr int kLaunches = 3000;
  for (int i = 0; i < kLaunches; ++i) {
    ASSERT_TRUE(launch(kFirst, add, 1, 1, packed(counter, 1, 1)).ok());
  }
  driver_->unload_module(kModule);
  load();
  expect_ok(launch(kFirst, function("add_to_each"), 1, 1, packed(counter, 1, 1000)));
  Awaited<Nothing> done;
  driver_->when_done(kFirst, done.callback());
  EXPECT_EQ(driver_->get_function(9999, kModule, "no_such_kernel").code, kSuccess)
      << "known only later";
  EXPECT_FALSE(done.is_ready());
  driver_->open_gate(77);
  const Outcome first = done.get().first;
  EXPECT_EQ(downloaded<int>(counter, 1).front(), kLaunches + 1000);
  // What the deferred call failed of comes with a callback after it.
  Awaited<Nothing> next;
  driver_->when_done(kFirst, next.callback());
  const Outcome second = next.get().first;
  EXPECT_TRUE(first.code == kNotFound || second.code == kNotFound);
}

TEST_F(RealDriverTest, PassesTextOnBeforeTheCallback) {
  std::printf("what a driver prints\n");
  finish();
  const std::lock_guard lock(print_mutex_);
  EXPECT_EQ(printed_, "what a driver prints\n");
}

TEST_F(RealDriverTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(driver_->load_module(5, 0, bytes_of(std::vector<char>(64, 'x'))).code, kInvalidImage);
  load();
  EXPECT_EQ(driver_->get_function(1, kModule, "no_such_kernel").code, kNotFound);
  const uint32_t nothing = function("nothing");
  EXPECT_EQ(launch(kLegacy, nothing, 1, 1, packed(1)).code, kInvalidValue);
  EXPECT_EQ(launch(kLegacy, 12345, 1, 1, {}).code, kInvalidHandle);
  EXPECT_NE(launch(kLegacy, nothing, 0, 1, {}).code, kSuccess);
  expect_ok(launch(kLegacy, nothing, 1, 1, {}));
  Driver::Variable variable;
  EXPECT_EQ(driver_->get_global(kModule, "no_such_variable", variable).code, kNotFound);
  EXPECT_EQ(driver_->wait_event(kLegacy, 4711).code, kInvalidHandle);
  finish();
}

TEST_F(RealDriverTest, KnowsVariablesAndAttributes) {
  load("driver_kernels_zstd.fatbin");
  Driver::Variable counters;
  expect_ok(driver_->get_global(kModule, "counters", counters));
  EXPECT_EQ(counters.size_bytes, 16u);
  expect_ok(launch(kLegacy, function("count_up"), 1, 8, {}));
  EXPECT_EQ(downloaded<int>(counters.address, 4), (std::vector<int>{3, 4, 5, 6}));
  const uint32_t reverse = function("reverse_shared");
  expect_ok(driver_->set_function_attribute(reverse, 8, 64 << 10));
  std::vector<int32_t> values;
  expect_ok(driver_->function_attributes(reverse, values));
  ASSERT_EQ(values.size(), 16u);
  EXPECT_EQ(values[8], 64 << 10);
  EXPECT_EQ(driver_->function_attributes(4711, values).code, kInvalidHandle);
}

TEST_F(RealDriverTest, CooperativeGridsRun) {
  load();
  const uint64_t partial = uploaded(std::vector<int>(8, 0));
  const uint64_t total = uploaded(std::vector<int>{0});
  expect_ok(launch(kLegacy, function("grid_total"), 8, 32, packed(partial, total),
                   calls::Launch::kCooperative));
  EXPECT_EQ(downloaded<int>(total, 1).front(), 36);
}

TEST_F(RealDriverTest, ManySmallCopiesAndAResetAreInOrder) {
  constexpr size_t kCount = 5000;  // More than one staging block's.
  const uint64_t memory = allocate(kCount * 4096);
  for (size_t i = 0; i < kCount; ++i) {
    expect_ok(driver_->upload(kFirst, bytes_of(std::vector<size_t>{i}), {memory + i * 4096, 8, 8},
                              {8, 1, 1}));
  }
  const auto values = downloaded<size_t>({memory, 4096, 4096 * kCount}, {8, kCount, 1}, kFirst);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], i);
  driver_->destroy_stream(kFirst);
  driver_->reset(0);
  expect_ok(driver_->allocate(memory, 4096));
  finish();
  const Driver::Memory left = driver_->memory(0);
  EXPECT_GT(left.free_bytes, 0u);
  EXPECT_LE(left.free_bytes, left.total_bytes);
}

// In a process of its own: our client's session is spoilt for good.
TEST_F(RealDriverTest, AFaultStays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fault = [&] {
    load();
    const uint64_t memory = allocate(4);
    expect_ok(launch(kLegacy, function("write_to"), 1, 1, packed(memory + 8 * kMiB)));
    Awaited<Nothing> first;
    driver_->when_done(kLegacy, first.callback());
    Awaited<Nothing> second;
    driver_->when_all_done(second.callback());
    Awaited<Bytes> third;
    driver_->download(kLegacy, {memory, 4, 4}, {4, 1, 1}, third.callback());
    const bool right = first.get().first.code == kIllegalAddress &&
                       second.get().first.code == kIllegalAddress &&
                       third.get().first.code == kIllegalAddress && !HasFailure();
    delete server_;  // It would hold what gtest waits for.
    std::_Exit(right ? 17 : 1);
  };
  EXPECT_EXIT(fault(), ::testing::ExitedWithCode(17), "");
}

}  // namespace
}  // namespace rgpu::server::cuda
