// SwitchWatch: PyTorch's numerics switches (TF32, determinism, attention backends …), which travel
// to the server as records before the first op that may see new values.
//
// PyTorch has no version of them, so that ops whose results may depend on them look: at the bytes
// of at::Context, and, for float32 products, at the one table that lies outside of it. Pointwise
// ops do not look; beside at::Context they could only depend on denormals, which tell us (note_…).
//
// Threading: check() under an IssueLock. The rest by any thread.
// Cost:      about 12 ns a check, 20 more for products; one record of 32 bytes after a change.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "wire/switches.h"

namespace rgpu::backend {

// What an op's results may depend on.
enum SwitchUse : uint8_t {
  kUsesNone = 0,
  kUsesContext = 1,
  kUsesMatmul = 2,
  kUsesConv = 4,
  kUsesRnn = 8,
  kUsesAll = 15,
};
[[nodiscard]] uint8_t switch_use(const c10::OperatorHandle& op);

class SwitchWatch {
 public:
  [[nodiscard]] static SwitchWatch& get();

  // Whether an op that uses these has to check().
  [[nodiscard]] static bool concerns(uint8_t use) noexcept {
    return use != kUsesNone || stale_.load(std::memory_order_relaxed);
  }
  // Appends a kSwitches record unless the session of `generation` has the values already.
  void check(uint8_t use, uint32_t generation);

  // torch.set_flush_denormal was called. PyTorch has it by thread; here it is the session's.
  void note_flush_denormal(bool on) noexcept;
  // Every next op checks, whatever it uses: a new session knows nothing yet.
  static void mark_stale() noexcept { stale_.store(true, std::memory_order_relaxed); }

 private:
  SwitchWatch();
  [[nodiscard]] bool may_have_changed(uint8_t use) const;
  void remember();
  [[nodiscard]] wire::Switches read(const at::Context& context) const;

  static std::atomic<bool> stale_;
  std::atomic<bool> flush_denormal_;
  const wire::Switches defaults_;  // What a session begins with.
  // Under the IssueLock.
  wire::Switches sent_;
  uint32_t generation_ = 0;  // Of the session that has `sent_`.
  std::array<std::byte, sizeof(at::Context)> seen_{};
  std::array<at::Float32Precision, 6> seen_precisions_{};  // As kProducts in switches.cc.
};

}  // namespace rgpu::backend
