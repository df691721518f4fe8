// Varints: LEB128 in its shortest form, and zigzag numbers that make small differences short.
//
// Threading: pure functions.
// Errors:    read_varint says what is wrong with the bytes; nullptr: nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rgpu::wire {

[[nodiscard]] constexpr uint64_t zigzag(uint64_t difference) {
  return (difference << 1) ^ (uint64_t{0} - (difference >> 63));
}

[[nodiscard]] constexpr uint64_t unzigzag(uint64_t value) {
  return (value >> 1) ^ (uint64_t{0} - (value & 1));
}

inline void append_varint(std::vector<uint8_t>& column, uint64_t value) {
  while (value >= 0x80) {
    column.push_back(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  column.push_back(static_cast<uint8_t>(value));
}

// Moves `at` behind the varint and gives nullptr, or what is wrong with it.
[[nodiscard]] inline const char* read_varint(const std::byte*& at, const std::byte* end,
                                             uint64_t& value) {
  uint64_t result = 0;
  for (uint32_t shift = 0; shift < 70; shift += 7) {
    if (at == end) return "ends within a number";
    const auto byte = static_cast<uint8_t>(*at++);
    if (shift == 63 && byte > 1) return "holds a number of more than 64 bits";
    result |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      if (byte == 0 && shift != 0) return "holds a number that is not in its shortest form";
      value = result;
      return nullptr;
    }
  }
  return "holds a number of more than 64 bits";
}

}  // namespace rgpu::wire
