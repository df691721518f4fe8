// Registration of the device with PyTorch: allocator and hooks. Once, when the extension loads.
#pragma once

namespace rgpu::backend {

void register_device();

}  // namespace rgpu::backend
