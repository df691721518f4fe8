// OpPlan: an op template made ready to run: the operator looked up, constant arguments boxed,
// geometries interned, and what the op writes to worked out from its schema.
//
// Threading: made on the decode thread, then constant; any stream reads it.
// Errors:    kInvalidArgument ends the session: the arguments do not fit the op's schema. An op
// that
//            is unknown here, may not be called or has another schema is no such error: `refusal`
//            then poisons the outputs of every record that uses the plan (schema_match.h).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/torch/cpu_gaps.h"
#include "server/torch/geometry.h"
#include "server/torch/sparse.h"
#include "wire/messages.h"
#include "wire/op_template.h"
#include "wire/status.h"

namespace rgpu::server {

struct TensorUse {
  GeometryPtr geometry;
  bool has_offset = false;
  bool requires_grad = false;
};

struct ArgPlan {
  enum class Source : uint8_t {
    kConstant,
    kTensor,
    kHostScalar,
    kScalar,
    kTensorList,
    kScalarList,
    kSparse  // Of `items`.
  };
  enum class Target : uint8_t {
    kNumber,
    kFloat,
    kInt,
    kBool
  };  // What the schema wants of a scalar.
  Source source = Source::kConstant;
  Target target = Target::kNumber;
  wire::ArgKind kind = wire::ArgKind::kNone;  // Of a scalar: how its value lies in the record.
  bool optional_items = false;                // Tensor?[]
  bool is_graph = false;                      // Of kTensor: the handle holds a graph, no tensor.
  c10::IValue constant;
  TensorUse use;
  std::vector<ArgPlan> items;
  std::shared_ptr<const SparseForm> sparse;  // Of kSparse.
};

struct OutputPlan {
  wire::OutputKind kind = wire::OutputKind::kNew;
  GeometryPtr geometry;  // Of kNew.
};

struct OpPlan {
  enum class Builtin : uint8_t {
    kNone,
    kGraphBackward,
    kGraphFind,
    kGraphLoad,
    kGraphCall,
    kGraphState,
    kEmptyCache,  // From here on: neither arguments nor results.
    kResetPeakMemory,
    kResetTotalMemory,
  };

  std::string name;                                        // "aten::add"
  c10::ScalarType default_dtype = c10::ScalarType::Float;  // The program's, while the op runs.
  bool ends_with_info = false;  // A linalg_*_ex: its last result says whether the others are good.
  bool takes_host_batch_sizes = false;  // A recurrent op over packed sequences, argument 1.
  bool checks_info = false;             // _linalg_check_errors
  bool looks_for_gradient = false;      // _sparse_mm_reduce_impl, see OpLauncher::call().
  std::string full_name;                // "aten::add.Tensor", for the crash report.
  std::optional<c10::OperatorHandle> op;
  GapFiller gap_filler = nullptr;  // Calls the op, if not null.
  Builtin builtin = Builtin::kNone;
  std::vector<ArgPlan> args;
  std::vector<OutputPlan> outputs;     // Without the graph.
  std::vector<uint8_t> input_written;  // One for each input handle: the op changes it in place.
  std::vector<GeometryPtr> input_geometries;
  uint32_t handle_count = 0;
  uint32_t input_count = 0;  // Handles that are inputs; the rest are new.
  uint32_t immediates_size_bytes = 0;
  uint64_t new_size_bytes = 0;  // Of all kNew outputs.
  bool any_written = false;
  bool random = false;
  bool replies = false;
  bool keeps_graph = false;
  std::optional<wire::RemoteError> refusal;
};

struct PlanContext {
  GeometryTable& geometries;
  c10::DeviceType device_type{};
  std::string client_torch_version;
};
[[nodiscard]] Result<std::unique_ptr<const OpPlan>> make_op_plan(const wire::OpTemplate& op,
                                                                 const PlanContext& context);

}  // namespace rgpu::server
