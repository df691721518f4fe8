// Transfer: tensor bytes up to the server and back.
//
// Threading: any thread. Uploads copy the host's bytes before they return and wait for nothing;
//            downloads are one wait, which carries everything pending with it.
#pragma once

#include <ATen/core/Tensor.h>

namespace rgpu::backend {

// target.copy_(source), for any mix of host and device; sizes must broadcast. Returns target.
at::Tensor copy_between(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
// The one element of a device tensor.
[[nodiscard]] at::Scalar local_scalar(const at::Tensor& tensor);

}  // namespace rgpu::backend
