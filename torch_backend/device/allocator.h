// The allocator PyTorch asks for storages of this device, and through which torch.accelerator sees
// the device's memory.
//
// Threading: any thread.
// Errors:    what a wait of Client's raises. Allocating fails only where there is no session: the
//            server's memory is found wanting later, as any remote error.
#pragma once

#include <c10/core/Allocator.h>

namespace rgpu::backend {

[[nodiscard]] c10::Allocator* device_allocator();

}  // namespace rgpu::backend
