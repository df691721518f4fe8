// Types, and what the suffixes of an opcode say (Shape).
//
// Threading: plain values.
#pragma once

#include <cstdint>
#include <string_view>

namespace rgpu::server::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kF16,
  kBF16,
  kB32,
  kU32,
  kS32,
  kF32,
  kF16x2,
  kBF16x2,
  kU16x2,
  kS16x2,
  kTF32,
  kB64,
  kU64,
  kS64,
  kF64,
  kF32x2,
  kB128,
  kE4M3x2,
  kE5M2x2,
};

// Of the value; predicates have 0.
[[nodiscard]] constexpr uint32_t type_size(Type type) {
  switch (type) {
    case Type::kNone:
    case Type::kPred:
      return 0;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBF16:
    case Type::kE4M3x2:
    case Type::kE5M2x2:
      return 2;
    case Type::kB32:
    case Type::kU32:
    case Type::kS32:
    case Type::kF32:
    case Type::kF16x2:
    case Type::kBF16x2:
    case Type::kU16x2:
    case Type::kS16x2:
    case Type::kTF32:
      return 4;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
    case Type::kF32x2:
      return 8;
    case Type::kB128:
      return 16;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64 ||
         type == Type::kS16x2;
}

[[nodiscard]] constexpr bool is_float(Type type) {
  switch (type) {
    case Type::kF16:
    case Type::kBF16:
    case Type::kF32:
    case Type::kF64:
    case Type::kF16x2:
    case Type::kBF16x2:
    case Type::kF32x2:
    case Type::kTF32:
      return true;
    default:
      return false;
  }
}

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam };
enum class Rounding : uint8_t { kNone, kNearest, kZero, kDown, kUp, kAway };
enum class Compare : uint8_t {
  kNone,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLo,
  kLs,
  kHi,
  kHs,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};
// What two values become: boolean operators of setp, operators of atom, red, redux and bar.red.
enum class Combine : uint8_t {
  kNone,
  kAnd,
  kOr,
  kXor,
  kAdd,
  kMin,
  kMax,
  kInc,
  kDec,
  kExch,
  kCas,
  kPopc
};
enum class Half : uint8_t { kNone, kLow, kHigh, kWide };
enum class Order : uint8_t { kWeak, kVolatile, kRelaxed, kAcquire, kRelease, kAcqRel };
// The mode of shfl, vote, match, shf, prmt, testp and others.
enum class Mode : uint8_t {
  kNone,
  kUp,
  kDown,
  kBfly,
  kIdx,
  kAll,
  kAny,
  kUni,
  kBallot,
  kLeft,
  kRight,
  kClamp,
  kWrap,
  kF4e,
  kB4e,
  kRc8,
  kEcl,
  kEcr,
  kRc16,
  kFinite,
  kInfinite,
  kNumber,
  kNotANumber,
  kNormal,
  kSubnormal,
};

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kMad,
  kFma,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kMul24,
  kMad24,
  kSad,
  kAddc,
  kSubc,
  kMadc,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kShf,
  kLop3,
  kPrmt,
  kBfe,
  kBfi,
  kBfind,
  kBrev,
  kPopc,
  kClz,
  kFns,
  kBmsk,
  kSzext,
  kDp4a,
  kDp2a,
  kRcp,
  kSqrt,
  kRsqrt,
  kSin,
  kCos,
  kEx2,
  kLg2,
  kTanh,
  kCopysign,
  kTestp,
  kSetp,
  kSet,
  kSelp,
  kSlct,
  kMov,
  kCvt,
  kVideo4,
};

// The suffixes of an opcode, each read in all its senses: the opcode picks the one it means.
struct Shape {
  Op op = Op::kMov;
  Type type = Type::kNone;   // The first type: mostly the result's.
  Type type2 = Type::kNone;  // The second.
  Type type3 = Type::kNone;
  Space space = Space::kGeneric;
  Rounding rounding = Rounding::kNone;
  Compare compare = Compare::kNone;
  Combine combine = Combine::kNone;   // The first of them,
  Combine combine2 = Combine::kNone;  // and the second (bar.red.popc has one, red.async.add too).
  Half half = Half::kNone;
  Order order = Order::kWeak;
  Mode mode = Mode::kNone;
  Mode mode2 = Mode::kNone;
  uint8_t vector = 1;       // .v2, .v4, .v8
  bool to_integer = false;  // .rni, .rzi, .rmi, .rpi
  bool ftz = false;
  bool saturate = false;
  bool saturate_finite = false;
  bool relu = false;
  bool nan = false;  // .NaN
  bool xorsign = false;
  bool carry = false;  // .cc
  bool sync = false;
  bool aligned = false;
  bool shift_amount = false;  // bfind.shiftamt
  bool to_space = false;      // cvta.to
  bool absolute = false;      // .abs
};

}  // namespace rgpu::server::ptx
