// The device guard: current device and streams, as torch.Stream, torch.Event and torch.accelerator
// see them. All streams share one ring for now, so that every order a program asks for holds.
#include "torch_backend/device/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "torch_backend/device/client.h"
#include "torch_backend/device/storage.h"

namespace rgpu::backend {
namespace {

thread_local c10::DeviceIndex current_index = 0;
thread_local c10::StreamId current_stream = 0;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  Guard() = default;
  explicit Guard(c10::DeviceType type) { TORCH_INTERNAL_ASSERT(type == kDeviceType); }
  c10::DeviceType type() const override { return kDeviceType; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kDeviceType, current_index}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_index = device.index();
  }
  // Never connects: only what a connected server has said. One device is assumed until then.
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    static std::atomic<c10::StreamId> next{1};
    return c10::Stream(c10::Stream::UNSAFE, device, next.fetch_add(1));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_stream = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {
    Client::get().synchronize();
  }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {
    Client::get().synchronize();
  }

  // All work runs in one order, so that an event is reached once what was issued before it is done.
  void record(void** event, const c10::Stream& /*stream*/, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    static char recorded;
    *event = &recorded;
  }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override { Client::get().synchronize(); }
  void destroyEvent(void* /*event*/, c10::DeviceIndex /*device*/) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr& /*data*/,
                             const c10::Stream& /*stream*/) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

c10::DeviceIndex current_device() noexcept { return current_index; }

void check_device(c10::DeviceIndex index) {
  if (index == 0) return;
  const int count = Client::get().device_count();
  TORCH_CHECK(index < count, "rgpu:", static_cast<int>(index), " does not exist: the server has ",
              count, " device", count == 1 ? "" : "s");
}

void set_current_device(c10::DeviceIndex index) {
  if (index == current_index || index < 0) return;
  check_device(index);
  current_index = index;
}

}  // namespace rgpu::backend
