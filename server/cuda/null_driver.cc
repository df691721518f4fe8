#include "server/cuda/null_driver.h"

#include <sys/mman.h>

#include <utility>

#include "server/cuda/emulated/device_attributes.h"
#include "wire/limits.h"

namespace rgpu::server::cuda {
namespace {

namespace calls = wire::cuda;

// As many as a reply may have, in memory that is never touched but to be read.
std::span<const std::byte> zeros() {
  static const std::span<const std::byte> bytes = [] {
    void* const mapped = mmap(nullptr, limits::kPayloadSizeBytesMax, PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    RGPU_CHECK(mapped != MAP_FAILED);
    return std::span(static_cast<const std::byte*>(mapped), limits::kPayloadSizeBytesMax);
  }();
  return bytes;
}

class NullDriver final : public Driver {
 public:
  explicit NullDriver(uint32_t device_count) : device_count_(device_count) {}

  [[nodiscard]] Result<wire::CudaInfo> open(const wire::CudaHello& hello) override {
    if (hello.address_bases.empty()) {
      return Status(Code::kInvalidArgument, "the client names no address range");
    }
    wire::CudaInfo info{.driver_version = 13000,
                        .emulated = true,
                        .address_base = hello.address_bases.front(),
                        .address_size_bytes = hello.address_size_bytes};
    for (uint32_t i = 0; i < device_count_; ++i) {
      info.devices.push_back({"rgpu null device", std::vector<std::byte>(16), kMemorySizeBytes,
                              device_attributes(i, 89)});
    }
    return info;
  }
  void on_print(std::function<void(std::string_view)>) override {}
  [[nodiscard]] Outcome allocate(uint64_t, uint64_t) override { return {}; }
  [[nodiscard]] Outcome free(uint64_t) override { return {}; }
  [[nodiscard]] Memory memory(uint32_t) override { return {kMemorySizeBytes, kMemorySizeBytes}; }
  void reset(uint32_t) override {}
  [[nodiscard]] Outcome load_module(uint32_t, uint32_t, Bytes) override { return {}; }
  void unload_module(uint32_t) override {}
  [[nodiscard]] Outcome get_function(uint32_t, uint32_t, std::string_view) override { return {}; }
  [[nodiscard]] Outcome get_global(uint32_t, std::string_view name, Variable&) override {
    return {kNotFound, "no variable " + std::string(name)};
  }
  [[nodiscard]] Outcome function_attributes(uint32_t, std::vector<int32_t>& values) override {
    values = {1024, 0, 0, 0, 32, 75, 89, 0, 49152, -1, 0, 0, 0, 0, 0, 0};
    return {};
  }
  [[nodiscard]] Outcome set_function_attribute(uint32_t, int32_t, int32_t) override { return {}; }
  [[nodiscard]] Outcome set_limit(uint32_t, int32_t, uint64_t) override { return {}; }
  [[nodiscard]] Outcome create_stream(uint32_t, const calls::CreateStream&) override { return {}; }
  void destroy_stream(uint32_t) override {}
  [[nodiscard]] Outcome upload(uint32_t, Bytes, const calls::Box&, const calls::Extent&) override {
    return {};
  }
  void download(uint32_t, const calls::Box&, const calls::Extent& extent, Download done) override {
    done({}, {zeros().first(extent.width_bytes * extent.height * extent.depth), nullptr});
  }
  [[nodiscard]] Outcome copy(uint32_t, const calls::Copy&) override { return {}; }
  [[nodiscard]] Outcome memset(uint32_t, const calls::Memset&) override { return {}; }
  [[nodiscard]] Outcome launch(uint32_t, const calls::Launch&,
                               std::span<const std::byte>) override {
    return {};
  }
  void gate(uint32_t, uint64_t, Callback reached) override { reached({}); }
  void open_gate(uint64_t) override {}
  void when_done(uint32_t, Callback done) override { done({}); }
  void when_all_done(Callback done) override { done({}); }
  [[nodiscard]] Outcome record_event(uint32_t, uint64_t) override { return {}; }
  [[nodiscard]] Outcome wait_event(uint32_t, uint64_t) override { return {}; }
  void when_reached(uint64_t, Timed done) override { done({}, 0); }
  void free_event(uint64_t) override {}

 private:
  static constexpr uint64_t kMemorySizeBytes = uint64_t{16} << 30;
  const uint32_t device_count_;
};

}  // namespace

std::unique_ptr<Driver> make_null_driver(uint32_t device_count) {
  return std::make_unique<NullDriver>(device_count);
}

}  // namespace rgpu::server::cuda
