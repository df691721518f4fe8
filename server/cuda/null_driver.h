// NullDriver: takes everything and does nothing, so that what comes before a device can be
// measured.
//
// Downloads are zeros; every kernel and variable exists. Threading: as server/cuda/driver.h says;
// it has no threads, so callbacks come from within the call.
#pragma once

#include <memory>

#include "server/cuda/driver.h"

namespace rgpu::server::cuda {

[[nodiscard]] std::unique_ptr<Driver> make_null_driver(uint32_t device_count);

}  // namespace rgpu::server::cuda
