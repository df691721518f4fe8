#include "server/cuda/emulated/ptx_rounding.h"

#include <bit>
#include <cfenv>
#include <cmath>

namespace rgpu::server::ptx {

RoundingScope::RoundingScope(Rounding rounding) : before_(std::fegetround()) {
  switch (rounding) {
    case Rounding::kZero:
      std::fesetround(FE_TOWARDZERO);
      break;
    case Rounding::kDown:
      std::fesetround(FE_DOWNWARD);
      break;
    case Rounding::kUp:
      std::fesetround(FE_UPWARD);
      break;
    default:
      std::fesetround(FE_TONEAREST);
      break;
  }
}
RoundingScope::~RoundingScope() { std::fesetround(before_); }

float rounded_add(float a, float b) { return a + b; }
float rounded_mul(float a, float b) { return a * b; }
float rounded_div(float a, float b) { return a / b; }
float rounded_sqrt(float a) { return std::sqrt(a); }
float rounded_fma(float a, float b, float c) { return std::fma(a, b, c); }
double rounded_add(double a, double b) { return a + b; }
double rounded_mul(double a, double b) { return a * b; }
double rounded_div(double a, double b) { return a / b; }
double rounded_sqrt(double a) { return std::sqrt(a); }
double rounded_fma(double a, double b, double c) { return std::fma(a, b, c); }
float rounded_float(double x) { return static_cast<float>(x); }
float rounded_float(int64_t x) { return static_cast<float>(x); }
double rounded_double(int64_t x) { return static_cast<double>(x); }

// Compilers convert by halving and doubling, which keeps the lost bit: right in every mode.
float rounded_float(uint64_t x) {
  if ((x >> 63) == 0) return static_cast<float>(static_cast<int64_t>(x));
  return 2.0F * static_cast<float>(static_cast<int64_t>((x >> 1) | (x & 1)));
}
double rounded_double(uint64_t x) {
  if ((x >> 63) == 0) return static_cast<double>(static_cast<int64_t>(x));
  return 2.0 * static_cast<double>(static_cast<int64_t>((x >> 1) | (x & 1)));
}

double add_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  auto bits = std::bit_cast<uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  // Inexact and even: the neighbour on the side of the exact sum is odd.
  bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
  return std::bit_cast<double>(bits);
}

uint32_t round_to(const Format& format, double x, Rounding rounding, bool finite) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const int width = 1 + format.exponent_bits + format.mantissa_bits;
  const auto sign = static_cast<uint32_t>(bits >> 63);
  const uint32_t sign_bit = sign << (width - 1);
  const uint32_t exponent_ones = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
  const uint32_t all_ones = (1U << (width - 1)) - 1;
  if (x != x) return all_ones;  // The one NaN of narrow formats.
  const uint32_t largest = format.infinite ? exponent_ones - 1 : all_ones - 1;
  if (std::isinf(x)) {
    return sign_bit | (finite ? largest : format.infinite ? exponent_ones : all_ones);
  }
  if (x == 0) return sign_bit;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  // x = fraction * 2^(exponent - 52), fraction with 53 bits unless x is subnormal as a double.
  int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == -1023) {
    exponent = -1022;
  } else {
    fraction |= uint64_t{1} << 52;
  }
  int shift = 52 - format.mantissa_bits;
  if (exponent < 1 - bias) shift += 1 - bias - exponent;
  if (shift > 60) {
    // Far below the smallest subnormal.
    fraction = 1;
    shift = 60;
  }
  const uint64_t rest = fraction & ((uint64_t{1} << shift) - 1);
  uint64_t kept = fraction >> shift;
  const uint64_t half = uint64_t{1} << (shift - 1);
  bool up = false;
  switch (rounding) {
    case Rounding::kZero:
      break;
    case Rounding::kDown:
      up = sign != 0 && rest != 0;
      break;
    case Rounding::kUp:
      up = sign == 0 && rest != 0;
      break;
    case Rounding::kAway:
      up = rest >= half;
      break;
    default:
      up = rest > half || (rest == half && (kept & 1) != 0);
      break;
  }
  kept += up ? 1 : 0;
  // Adding the exponent below the mantissa lets a carry run into it.
  const int64_t biased = exponent < 1 - bias ? 0 : exponent + bias - 1;
  const uint64_t magnitude = kept + (static_cast<uint64_t>(biased) << format.mantissa_bits);
  if (magnitude <= largest) return sign_bit | static_cast<uint32_t>(magnitude);
  const bool to_largest = finite || rounding == Rounding::kZero ||
                          (rounding == Rounding::kDown && sign == 0) ||
                          (rounding == Rounding::kUp && sign != 0);
  return sign_bit | (to_largest ? largest : format.infinite ? exponent_ones : all_ones);
}

double expand(const Format& format, uint32_t bits) {
  const int width = 1 + format.exponent_bits + format.mantissa_bits;
  const uint32_t mantissa = bits & ((1U << format.mantissa_bits) - 1);
  const uint32_t exponent = (bits >> format.mantissa_bits) & ((1U << format.exponent_bits) - 1);
  const uint32_t exponent_max = (1U << format.exponent_bits) - 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double sign = ((bits >> (width - 1)) & 1) != 0 ? -1.0 : 1.0;
  if (exponent == exponent_max) {
    if (format.infinite) return mantissa == 0 ? sign * HUGE_VAL : NAN;
    if (mantissa == (1U << format.mantissa_bits) - 1) return NAN;
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (1U << format.mantissa_bits),
                           static_cast<int>(exponent) - bias - format.mantissa_bits);
}

}  // namespace rgpu::server::ptx
