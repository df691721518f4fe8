// The calling thread's current device.
//
// Threading: thread-local state. Errors: an index the server does not have.
#pragma once

#include <c10/core/Device.h>

namespace rgpu::backend {

// Read for every op: hence no function.
extern constinit thread_local c10::DeviceIndex current_device_index;
[[nodiscard]] inline c10::DeviceIndex current_device() noexcept { return current_device_index; }
// The given device, or the current one where there is no index.
[[nodiscard]] inline c10::DeviceIndex or_current(c10::DeviceIndex index) noexcept {
  return index < 0 ? current_device_index : index;
}
// Throws unless the server has that device. Asks the server (one wait, once) for any but device 0.
void check_device(int index);
// Asks the server (one wait, once) unless the index is already current.
void set_current_device(int index);

}  // namespace rgpu::backend
