// What does the first use of a template cost, and how large is it on the wire?
//
// Run:      build/dev/bench/wire/wire_op_template_bench
// Look for: list:0 (aten::add.Tensor) well under 1 µs each way, and list:100 (a foreach op over 100
//           tensors) in proportion to its tensors. A training step defines some hundred templates
//           once. Copy is the baseline: the plain value copied, which allocates as decoding must.
#include <benchmark/benchmark.h>

#include <vector>

#include "wire/op_template.h"

namespace rgpu::wire {
namespace {

Arg tensor() {
  Arg arg;
  arg.kind = ArgKind::kTensor;
  arg.tensor = {6, 0, {64, 128, 768}, {98304, 768, 1}};
  return arg;
}

Arg scalar() {
  Arg arg;
  arg.kind = ArgKind::kScalarDouble;
  return arg;
}

// aten::add.Tensor for 0 tensors, otherwise aten::_foreach_add_.Scalar of so many.
OpTemplate op_of(int64_t list_size) {
  OpTemplate op;
  op.schema_hash = 0x0123456789abcdef;
  if (list_size == 0) {
    op.name = "aten::add";
    op.overload = "Tensor";
    op.args = {tensor(), tensor(), scalar()};
    op.outputs = {{OutputKind::kNew, tensor().tensor}};
    return op;
  }
  op.name = "aten::_foreach_add_";
  op.overload = "Scalar";
  Arg list;
  list.kind = ArgKind::kTensorList;
  list.items.assign(static_cast<size_t>(list_size), tensor());
  op.args = {list, scalar()};
  return op;
}

void copy(benchmark::State& state) {
  const OpTemplate op = op_of(state.range(0));
  for (auto _ : state) {
    OpTemplate target = op;
    benchmark::DoNotOptimize(target);
  }
}

void encode(benchmark::State& state) {
  const OpTemplate op = op_of(state.range(0));
  size_t size_bytes = 0;
  for (auto _ : state) {
    size_bytes = encode_op_template(op).size();
    benchmark::DoNotOptimize(size_bytes);
  }
  state.counters["size_bytes"] = static_cast<double>(size_bytes);
}

void decode(benchmark::State& state) {
  const auto bytes = encode_op_template(op_of(state.range(0)));
  for (auto _ : state) {
    const auto op = decode_op_template(bytes);
    if (!op) state.SkipWithError("the template does not decode");
    benchmark::DoNotOptimize(op);
  }
  state.counters["size_bytes"] = static_cast<double>(bytes.size());
}

BENCHMARK(copy)->Name("Copy")->ArgName("list")->Arg(0)->Arg(100);
BENCHMARK(encode)->Name("Encode")->ArgName("list")->Arg(0)->Arg(100);
BENCHMARK(decode)->Name("Decode")->ArgName("list")->Arg(0)->Arg(100);

}  // namespace
}  // namespace rgpu::wire

BENCHMARK_MAIN();
