// KernelScope: what is called inside reaches the kernels of another device (Meta, CPU) themselves:
// no autograd, no modes of the interpreter in between.
//
// Threading: the state is the thread's own.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace rgpu::backend {

class KernelScope {
 public:
  KernelScope() { at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::ALL_DISABLED); }
  ~KernelScope() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_ =
      at::impl::PythonTorchFunctionTLS::get_disabled_state();
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_python_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                           c10::DispatchKey::Functionalize})};
};

}  // namespace rgpu::backend
