// The calling thread's current device.
//
// Threading: thread-local state. Errors: an index the server does not have.
#pragma once

#include <c10/core/Device.h>

namespace rgpu::backend {

[[nodiscard]] c10::DeviceIndex current_device() noexcept;
// Throws unless the server has that device. Asks the server (one wait, once) for any but device 0.
void check_device(c10::DeviceIndex index);
// Asks the server (one wait, once) unless the index is already current.
void set_current_device(c10::DeviceIndex index);

}  // namespace rgpu::backend
