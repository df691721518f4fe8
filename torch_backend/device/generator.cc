#include "torch_backend/device/generator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <mutex>

#include "torch_backend/device/storage.h"
#include "wire/limits.h"

namespace rgpu::backend {

Generator::Generator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kDeviceType, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_{c10::default_rng_seed_val, 0} {}

PhiloxState Generator::reserve(uint64_t elements) {
  const std::lock_guard lock(mutex_);
  const PhiloxState reserved = state_;
  state_.offset += (elements + 7) / 4 * 4;
  return reserved;
}

void Generator::set_current_seed(uint64_t seed) { state_ = {seed, 0}; }

void Generator::set_offset(uint64_t offset) {
  TORCH_CHECK_VALUE(offset % 4 == 0, "the offset of an rgpu generator is a multiple of 4, not ",
                    offset);
  state_.offset = offset;
}

uint64_t Generator::seed() {
  const uint64_t seed = c10::detail::getNonDeterministicRandom(true);
  set_current_seed(seed);
  return seed;
}

void Generator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(
      state.device_type() == c10::DeviceType::CPU && state.dtype() == at::kByte &&
          state.numel() == static_cast<int64_t>(sizeof(state_)) && state.is_contiguous(),
      "the state of an rgpu generator is a contiguous CPU tensor of ", sizeof(state_), " bytes");
  PhiloxState given;
  std::memcpy(&given, state.data(), sizeof(given));
  set_offset(given.offset);
  state_ = given;
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  const at::Tensor state = at::empty({static_cast<int64_t>(sizeof(state_))},
                                     at::TensorOptions(at::kCPU).dtype(at::kByte));
  std::memcpy(state.mutable_data_ptr(), &state_, sizeof(state_));
  return state.getIntrusivePtr();
}

c10::DeviceType Generator::device_type() { return kDeviceType; }

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->state_ = state_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  using Generators = std::array<at::Generator, limits::kDevicesMax>;
  static const auto* generators = [] {  // Leaked, as everything that ops use.
    auto* made = new Generators();
    for (size_t i = 0; i < made->size(); ++i) {
      (*made)[i] = at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i));
    }
    return made;
  }();
  return generators->at(static_cast<size_t>(device));
}

Generator& generator_for(const at::Generator* generator, c10::DeviceIndex device) {
  const at::Generator& chosen = generator == nullptr ? default_generator(device) : *generator;
  return *chosen.get<Generator>();
}

void seed_default_generators(uint64_t seed) {
  for (size_t i = 0; i < limits::kDevicesMax; ++i) {
    at::Generator generator = default_generator(static_cast<c10::DeviceIndex>(i));
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

}  // namespace rgpu::backend
