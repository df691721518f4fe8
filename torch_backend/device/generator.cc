#include "torch_backend/device/generator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "torch_backend/device/storage.h"

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

const at::Generator& default_generator(c10::DeviceIndex /*device*/) {
  static const auto* generator =
      new at::Generator(at::make_generator<Generator>(c10::DeviceIndex{0}));
  return *generator;
}

Generator& generator_for(const at::Generator* generator) {
  const at::Generator& chosen = generator == nullptr ? default_generator(0) : *generator;
  return *chosen.get<Generator>();
}

}  // namespace rgpu::backend
