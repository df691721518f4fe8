// The device guard: current device, streams and events, as torch.Stream, torch.Event and
// torch.accelerator see them.
#include "torch_backend/device/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "torch_backend/device/client.h"
#include "torch_backend/device/event.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/device/stream.h"

namespace rgpu::backend {
namespace {

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
  c10::Device getDevice() const override { return {kDeviceType, current_device()}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device_index = device.index();
  }
  // Never connects: only what a connected server has said. One device is assumed until then.
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(Client::get().known_device_count());
  }

  c10::Stream getStream(c10::Device device) const override {
    const c10::Device concrete = checked(device);
    return c10::Stream(c10::Stream::UNSAFE, concrete,
                       wire::index_of_stream(current_stream(concrete.index())));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, checked(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    const c10::Device concrete = checked(device);
    return c10::Stream(c10::Stream::UNSAFE, concrete, new_stream(concrete.index()));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    set_current_stream(stream);
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return query_stream(stream_number(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_stream(stream_number(stream));
  }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override { synchronize_devices(); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event();
    as_event(*event).record(stream_number(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) as_event(event).block(stream_number(stream));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || as_event(event).query();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) as_event(event).synchronize();
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "rgpu: both events must be recorded before the time between them is asked for");
    return static_cast<double>(as_event(end).ns_since(as_event(start))) * 1e-6;
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  // The server notes every stream that uses a storage by itself.
  void recordDataPtrOnStream(const c10::DataPtr& /*data*/,
                             const c10::Stream& /*stream*/) const override {}

 private:
  static c10::Device checked(c10::Device device) {
    const c10::DeviceIndex index = or_current(device.index());
    check_device(index);
    return {kDeviceType, index};
  }
  static Event& as_event(void* event) { return *static_cast<Event*>(event); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

constinit thread_local c10::DeviceIndex current_device_index = 0;

void check_device(int index) {
  if (index == 0) return;
  const int count = Client::get().device_count();
  TORCH_CHECK(index > 0 && index < count, "rgpu: invalid device ordinal: rgpu:", index,
              " does not exist, the server has ", count, " device", count == 1 ? "" : "s");
}

void set_current_device(int index) {
  if (index == current_device_index || index < 0) return;
  check_device(index);
  current_device_index = static_cast<c10::DeviceIndex>(index);
}

}  // namespace rgpu::backend
