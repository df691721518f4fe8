#include "server/cuda/emulated/ptx_shape.h"

#include <unordered_map>

#include "server/cuda/emulated/ptx_syntax.h"

namespace rgpu::server::ptx {
namespace {

struct Meaning {
  Compare compare = Compare::kNone;
  Combine combine = Combine::kNone;
  Half half = Half::kNone;
  Mode mode = Mode::kNone;
};

const std::unordered_map<std::string_view, Meaning>& meanings() {
  static const std::unordered_map<std::string_view, Meaning> kMeanings = {
      {"eq", {.compare = Compare::kEq}},
      {"ne", {.compare = Compare::kNe}},
      {"lt", {.compare = Compare::kLt}},
      {"le", {.compare = Compare::kLe}},
      {"gt", {.compare = Compare::kGt}},
      {"ge", {.compare = Compare::kGe}},
      {"lo", {.compare = Compare::kLo, .half = Half::kLow}},
      {"ls", {.compare = Compare::kLs}},
      {"hi", {.compare = Compare::kHi, .half = Half::kHigh}},
      {"hs", {.compare = Compare::kHs}},
      {"equ", {.compare = Compare::kEqu}},
      {"neu", {.compare = Compare::kNeu}},
      {"ltu", {.compare = Compare::kLtu}},
      {"leu", {.compare = Compare::kLeu}},
      {"gtu", {.compare = Compare::kGtu}},
      {"geu", {.compare = Compare::kGeu}},
      {"num", {.compare = Compare::kNum}},
      {"nan", {.compare = Compare::kNan}},
      {"wide", {.half = Half::kWide}},
      {"and", {.combine = Combine::kAnd}},
      {"or", {.combine = Combine::kOr}},
      {"xor", {.combine = Combine::kXor}},
      {"add", {.combine = Combine::kAdd}},
      {"min", {.combine = Combine::kMin}},
      {"max", {.combine = Combine::kMax}},
      {"inc", {.combine = Combine::kInc}},
      {"dec", {.combine = Combine::kDec}},
      {"exch", {.combine = Combine::kExch}},
      {"cas", {.combine = Combine::kCas}},
      {"popc", {.combine = Combine::kPopc}},
      {"up", {.mode = Mode::kUp}},
      {"down", {.mode = Mode::kDown}},
      {"bfly", {.mode = Mode::kBfly}},
      {"idx", {.mode = Mode::kIdx}},
      {"all", {.mode = Mode::kAll}},
      {"any", {.mode = Mode::kAny}},
      {"uni", {.mode = Mode::kUni}},
      {"ballot", {.mode = Mode::kBallot}},
      {"l", {.mode = Mode::kLeft}},
      {"r", {.mode = Mode::kRight}},
      {"clamp", {.mode = Mode::kClamp}},
      {"wrap", {.mode = Mode::kWrap}},
      {"f4e", {.mode = Mode::kF4e}},
      {"b4e", {.mode = Mode::kB4e}},
      {"rc8", {.mode = Mode::kRc8}},
      {"ecl", {.mode = Mode::kEcl}},
      {"ecr", {.mode = Mode::kEcr}},
      {"rc16", {.mode = Mode::kRc16}},
      {"finite", {.mode = Mode::kFinite}},
      {"infinite", {.mode = Mode::kInfinite}},
      {"number", {.mode = Mode::kNumber}},
      {"notanumber", {.mode = Mode::kNotANumber}},
      {"normal", {.mode = Mode::kNormal}},
      {"subnormal", {.mode = Mode::kSubnormal}},
  };
  return kMeanings;
}

bool apply_meaning(Shape& shape, std::string_view word) {
  const auto found = meanings().find(word);
  if (found == meanings().end()) return false;
  const Meaning& meaning = found->second;
  if (meaning.compare != Compare::kNone) shape.compare = meaning.compare;
  if (meaning.half != Half::kNone) shape.half = meaning.half;
  if (meaning.combine != Combine::kNone) {
    (shape.combine == Combine::kNone ? shape.combine : shape.combine2) = meaning.combine;
  }
  if (meaning.mode != Mode::kNone) {
    (shape.mode == Mode::kNone ? shape.mode : shape.mode2) = meaning.mode;
  }
  return true;
}

bool apply_rounding(Shape& shape, std::string_view word) {
  static const std::unordered_map<std::string_view, Rounding> kRoundings = {
      {"rn", Rounding::kNearest}, {"rz", Rounding::kZero},  {"rm", Rounding::kDown},
      {"rp", Rounding::kUp},      {"rna", Rounding::kAway}, {"rni", Rounding::kNearest},
      {"rzi", Rounding::kZero},   {"rmi", Rounding::kDown}, {"rpi", Rounding::kUp}};
  const auto found = kRoundings.find(word);
  if (found == kRoundings.end()) return false;
  shape.rounding = found->second;
  shape.to_integer = word.ends_with('i');
  return true;
}

bool apply_space(Shape& shape, std::string_view word) {
  static const std::unordered_map<std::string_view, Space> kSpaces = {
      {"global", Space::kGlobal},      {"shared", Space::kShared},
      {"shared::cta", Space::kShared}, {"shared::cluster", Space::kShared},
      {"local", Space::kLocal},        {"const", Space::kConst},
      {"param", Space::kParam},        {"param::entry", Space::kParam},
      {"param::func", Space::kParam}};
  const auto found = kSpaces.find(word);
  if (found == kSpaces.end()) return false;
  // The first: cp.async names a second.
  if (shape.space == Space::kGeneric) shape.space = found->second;
  return true;
}

bool apply_order(Shape& shape, std::string_view word) {
  static const std::unordered_map<std::string_view, Order> kOrders = {
      {"volatile", Order::kVolatile}, {"relaxed", Order::kRelaxed}, {"acquire", Order::kAcquire},
      {"release", Order::kRelease},   {"acq_rel", Order::kAcqRel},  {"sc", Order::kAcqRel},
      {"weak", Order::kWeak},         {"cv", Order::kVolatile},     {"mmio", Order::kRelaxed}};
  const auto found = kOrders.find(word);
  if (found == kOrders.end()) return false;
  shape.order = found->second;
  return true;
}

bool apply_flag(Shape& shape, std::string_view word) {
  static const std::unordered_map<std::string_view, bool Shape::*> kFlags = {
      {"ftz", &Shape::ftz},
      {"sat", &Shape::saturate},
      {"satfinite", &Shape::saturate_finite},
      {"relu", &Shape::relu},
      {"NaN", &Shape::nan},
      {"xorsign", &Shape::xorsign},
      {"cc", &Shape::carry},
      {"sync", &Shape::sync},
      {"aligned", &Shape::aligned},
      {"shiftamt", &Shape::shift_amount},
      {"to", &Shape::to_space},
      {"abs", &Shape::absolute}};
  const auto found = kFlags.find(word);
  if (found == kFlags.end()) return false;
  shape.*(found->second) = true;
  return true;
}

// Hints, scopes and what is the only way here.
bool is_ignored(std::string_view word) {
  static const std::unordered_map<std::string_view, bool> kIgnored = {{"approx", true},
                                                                      {"full", true},
                                                                      {"noftz", true},
                                                                      {"ca", true},
                                                                      {"cg", true},
                                                                      {"cs", true},
                                                                      {"lu", true},
                                                                      {"wb", true},
                                                                      {"wt", true},
                                                                      {"nc", true},
                                                                      {"sys", true},
                                                                      {"gpu", true},
                                                                      {"cta", true},
                                                                      {"cluster", true},
                                                                      {"async", true},
                                                                      {"unified", true},
                                                                      {"L1", true},
                                                                      {"L2", true},
                                                                      {"arrive", true},
                                                                      {"red", true},
                                                                      {"warp", true},
                                                                      {"b0", true},
                                                                      {"level::eviction", true}};
  return kIgnored.contains(word) || word.starts_with("L1::") || word.starts_with("L2::");
}

bool apply_vector(Shape& shape, std::string_view word) {
  if (word == "v2" || word == "v4" || word == "v8") {
    shape.vector = static_cast<uint8_t>(word[1] - '0');
    return true;
  }
  return false;
}

}  // namespace

std::optional<Shape> parse_shape(std::span<const std::string_view> suffixes) {
  Shape shape;
  for (const std::string_view word : suffixes) {
    if (const Type type = type_of(word); type != Type::kNone) {
      Type& slot = shape.type == Type::kNone    ? shape.type
                   : shape.type2 == Type::kNone ? shape.type2
                                                : shape.type3;
      slot = type;
      continue;
    }
    if (apply_meaning(shape, word) || apply_rounding(shape, word) || apply_space(shape, word) ||
        apply_order(shape, word) || apply_flag(shape, word) || apply_vector(shape, word) ||
        is_ignored(word)) {
      continue;
    }
    return std::nullopt;
  }
  return shape;
}

}  // namespace rgpu::server::ptx
