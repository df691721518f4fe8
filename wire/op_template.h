// OpTemplate: all of an op's call that does not change from one use to the next.
//
// The first use of a template sends it whole; every later use is a record that names its number
// (batch.h). A record's handles are, in this order: every kTensor of `args`, depth first, then
// one new handle for every Output that is kNew, kOpaque or kUnknown. Its immediates are, in this
// order:
// for every arg, depth first,
//   kTensor with kHasOffset  → int64 storage offset in elements
//   kHostScalar              → 16 bytes: the value, zero padded
//   kScalarInt, kScalarBool  → int64       kScalarDouble → double      kScalarComplex → 2 doubles
// then, for `random`, uint64 seed and uint64 offset; then, for `replies`, uint64 request.
//
// Threading: plain values.
// Errors:    decode_op_template returns kInvalidArgument for what does not verify or breaks a
// limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/status.h"

namespace rgpu::wire {

struct TensorMeta {
  enum Flags : uint8_t {
    kHasOffset = 1,  // The record carries the storage offset; otherwise it is 0.
    kConj = 2,
    kNeg = 4,
    kWrappedNumber = 8,  // c10's: takes no part in type promotion as a tensor would.
    kRequiresGrad = 16,  // Only with keeps_graph: backward is wanted for this one.
  };
  int8_t dtype = 0;  // c10::ScalarType's number.
  uint8_t flags = 0;
  std::vector<int64_t> sizes;    // Elements, per dimension.
  std::vector<int64_t> strides;  // Elements, per dimension; as many as sizes.
  bool operator==(const TensorMeta&) const = default;
};

enum class ArgKind : uint8_t {
  kNone = 0,
  kTensor = 1,      // `tensor`
  kHostScalar = 2,  // A 0-dim CPU tensor: `tensor.dtype`, `tensor.flags`; value in the record.
  kScalarInt = 3,   // A Scalar or float whose value is in the record.
  kScalarDouble = 4,
  kScalarComplex = 5,
  kScalarBool = 6,
  kBool = 7,         // `integer` 0 or 1
  kInt = 8,          // `integer`; also dtypes, layouts, memory formats
  kDouble = 9,       // `real`
  kString = 10,      // `text`
  kDevice = 11,      // `integer`: device index; the server's own device of that index
  kIntList = 12,     // `integers`
  kDoubleList = 13,  // `reals`
  kBoolList = 14,    // `integers`
  kTensorList = 15,  // `items`: kTensor, kHostScalar or kNone
  kScalarList = 16,  // `items`: kScalar*
  kComplex = 17,     // `reals`: real, imaginary
};

struct Arg {
  ArgKind kind = ArgKind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  TensorMeta tensor;
  std::vector<Arg> items;
  bool operator==(const Arg&) const = default;
};

enum class OutputKind : uint8_t {
  kNew = 0,      // A new handle; the result must have `meta`'s dtype and sizes; other strides are
                 // copied into place. The handle is then a storage that holds it at offset 0.
  kAlias = 1,    // One of the arguments, changed in place: nothing to bind.
  kNone = 2,     // The op returns an undefined tensor here.
  kOpaque = 3,   // A new handle for a value that only the server understands.
  kUnknown = 4,  // A new handle; the server replies with its meta (only with `replies`). Of those
                 // at the end some may stay unbound: a list turned out shorter, as the metas tell.
};

struct Output {
  OutputKind kind = OutputKind::kNew;
  TensorMeta meta;
  bool operator==(const Output&) const = default;
};

struct OpTemplate {
  std::string name;             // "aten::add"; "rgpu::…" are the server's own.
  std::string overload;         // "Tensor", "" …
  uint64_t schema_hash = 0;     // xxHash3 of the schema's text; 0: not checked.
  std::vector<Arg> args;        // Every argument of the schema, in order.
  std::vector<Output> outputs;  // Every tensor returned, lists flattened, in order.
  bool random = false;          // The record carries seed and offset.
  bool replies = false;         // The record carries a request; the reply has the metas of kUnknown
                                // outputs and all non-tensor results.
  int8_t default_dtype = 6;  // c10::ScalarType's number of the program's default dtype (float32).
  bool keeps_graph = false;  // Run with grad enabled; one more kOpaque output, the last one of
                             // `outputs`, holds the graph for rgpu::graph_backward.
  bool operator==(const OpTemplate&) const = default;

  // What a record of this template carries; derived from the above.
  [[nodiscard]] uint32_t handle_count() const;      // Inputs and new outputs.
  [[nodiscard]] uint32_t new_handle_count() const;  // The last so many of them.
  [[nodiscard]] uint32_t immediates_size_bytes() const;
};

// Whether it keeps to the limits and to what the comments above say; decode_op_template makes the
// same check. Users' arguments can break it (65 dimensions, a string of a megabyte), so it comes
// before encode_op_template, which ends the process instead.
[[nodiscard]] Status check_op_template(const OpTemplate& op);
// One finished FlatBuffers buffer. Allocates; only templates' first uses come here. It may be over
// limits::kTemplateSizeBytesMax: whoever sends it looks.
[[nodiscard]] std::vector<std::byte> encode_op_template(const OpTemplate& op);
// `bytes` need no alignment.
[[nodiscard]] Result<OpTemplate> decode_op_template(std::span<const std::byte> bytes);

}  // namespace rgpu::wire
