// Generator: random state that lives on the client. A random op reserves a range of a Philox
// sequence and sends (seed, offset) with its record, so that asking and setting the state costs no
// message, sessions share nothing and a replay draws the same numbers.
//
// Threading: reserve() and the state functions lock the generator's own mutex.
#pragma once

#include <ATen/core/Generator.h>

namespace rgpu::backend {

struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;  // A multiple of 4.
};

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  // The range [offset, offset + elements rounded up to 4) is the caller's.
  [[nodiscard]] PhiloxState reserve(uint64_t elements);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return state_.offset; }
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override;
  // uint8[16] on the CPU: seed, offset; little-endian.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type();

 private:
  Generator* clone_impl() const override;
  PhiloxState state_;
};

[[nodiscard]] const at::Generator& default_generator(c10::DeviceIndex device);
// The given generator, or the device's default one when null.
[[nodiscard]] Generator& generator_for(const at::Generator* generator, c10::DeviceIndex device);
// Of every device there could be: no server is asked how many there are.
void seed_default_generators(uint64_t seed);

}  // namespace rgpu::backend
