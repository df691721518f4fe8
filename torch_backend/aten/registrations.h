// Registers every kernel of device rgpu with PyTorch's dispatcher. Once, when the extension loads.
#pragma once

namespace rgpu::backend {

void register_kernels();
// CUDA's autocast op lists for device rgpu (autocast.cc).
void register_autocast();

}  // namespace rgpu::backend
