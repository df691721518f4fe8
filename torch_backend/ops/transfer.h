// Transfer: tensor bytes up to the server and back.
//
// Threading: any thread. Uploads wait for nothing: before they return, the host's bytes are sent or
//            copied (runtime/upload_feed.h), unless the host tensor is pinned and `non_blocking`:
//            then nothing is copied, and the program leaves it as it is until it has synchronized.
//            Downloads are one wait, which carries everything pending with it, unless they are
//            `non_blocking` and the target is pinned: see device/downloads.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace rgpu::backend {

// target.copy_(source), for any mix of host and device; sizes must broadcast. Returns target.
at::Tensor copy_between(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
// Tensor.to() from device rgpu. What goes to the CPU gets memory of host_allocator().
at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout> layout, std::optional<at::Device> device,
                   std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<at::MemoryFormat> format);
// CPU tensors of the same geometry and values, by one wait.
[[nodiscard]] std::vector<at::Tensor> download_together(at::TensorList sources);
// The one element of a device tensor.
[[nodiscard]] at::Scalar local_scalar(const at::Tensor& tensor);

}  // namespace rgpu::backend
