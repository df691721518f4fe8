#include "torch_backend/device/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "torch_backend/device/allocator.h"
#include "torch_backend/device/client.h"
#include "torch_backend/device/generator.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/host_memory.h"
#include "torch_backend/device/storage.h"

namespace rgpu::backend {
namespace {

struct Hooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return Client::get().connected();
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(Client::get().device_count());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = current_device();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(or_current(device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(or_current(device));
  }
  at::Device getDeviceFromPtr(void* /*data*/) const override {
    return {kDeviceType, current_device()};
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size_bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), size_bytes);
  }
};

}  // namespace

void register_device() {
  c10::SetAllocator(kDeviceType, device_allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks());  // PyTorch keeps the pointer for ever.
}

}  // namespace rgpu::backend
