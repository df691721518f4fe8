// Arithmetic in the rounding modes other than to nearest, and rounding to narrow formats.
//
// Compiled without the assumption that the mode never changes.
#pragma once

#include <cstdint>

#include "server/cuda/emulated/ptx_types.h"

namespace rgpu::server::ptx {

// The processor's rounding mode while it lives.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding);
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;
  ~RoundingScope();

 private:
  int before_;
};

// One operation in the current mode, out of line so that nothing is computed ahead.
float rounded_add(float a, float b);
float rounded_mul(float a, float b);
float rounded_div(float a, float b);
float rounded_sqrt(float a);
float rounded_fma(float a, float b, float c);
double rounded_add(double a, double b);
double rounded_mul(double a, double b);
double rounded_div(double a, double b);
double rounded_sqrt(double a);
double rounded_fma(double a, double b, double c);
float rounded_float(double x);
float rounded_float(int64_t x);
float rounded_float(uint64_t x);
double rounded_double(int64_t x);
double rounded_double(uint64_t x);

// a + b with the bits below a double's last kept as that last bit: rounding the result once more,
// to a format at least two bits narrower, is as rounding the exact sum.
double add_to_odd(double a, double b);

// A binary float format: 5 and 10 for f16, 8 and 7 for bf16, 4 and 3 for e4m3, 5 and 2 for e5m2.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool infinite;  // False (e4m3): the highest exponent holds numbers, all ones is NaN.
};
inline constexpr Format kHalfFormat{5, 10, true};
inline constexpr Format kBfloatFormat{8, 7, true};
inline constexpr Format kE4M3Format{4, 3, false};
inline constexpr Format kE5M2Format{5, 2, true};
inline constexpr Format kTf32Format{8, 10, true};  // Its bits are the upper 19 of a float.

// The bits of `x` in `format`. `finite`: the largest number instead of infinity (satfinite).
uint32_t round_to(const Format& format, double x, Rounding rounding, bool finite = false);
double expand(const Format& format, uint32_t bits);

}  // namespace rgpu::server::ptx
