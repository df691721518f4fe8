// A client of another PyTorch: the ops whose schemas agree run, each other one is refused by
// itself.

#include "server/torch/schema_match.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::OutputKind;

// Ops of this server that its clients know in an older form.
at::Tensor scaled(const at::Tensor& self, int64_t factor, const std::optional<at::Tensor>& other) {
  const at::Tensor product = self.mul(factor);
  return other ? product.add(*other) : product;
}

at::Tensor& scaled_out(const at::Tensor& self, int64_t factor, at::Tensor& out) {
  return out.copy_(self.mul(factor));
}

TORCH_LIBRARY_FRAGMENT(aten, library) {
  library.def("rgpu_scaled(Tensor self, *, int factor=3, Tensor? other=None) -> Tensor");
  library.def("rgpu_scaled.out(Tensor self, *, int factor=3, Tensor(a!) out) -> Tensor(a!)");
  library.impl("rgpu_scaled", scaled);
  library.impl("rgpu_scaled.out", scaled_out);
}

uint64_t hash_of(const std::string& schema) { return schema_hash(torch::jit::parseSchema(schema)); }

class SchemaMatch : public EngineFixture {
 protected:
  // Handle 2 is the op's result for [1, 2, 3] in handle 1.
  void record(wire::OpTemplate op) {
    const uint32_t number = batch.define(op);
    batch.upload<float>(1, {1, 2, 3}).record(number, {1, 2});
    apply();
  }
  void record_scaled(const std::string& client_schema, std::vector<wire::Arg> args) {
    wire::OpTemplate scaled = op("aten::rgpu_scaled", "", std::move(args), {new_output({3})});
    scaled.schema_hash = hash_of(client_schema);
    record(scaled);
  }
  // Reading handle 2 raises NotImplementedError with all these parts, and the session goes on.
  void expect_refused(std::initializer_list<const char*> parts) {
    const wire::RemoteError error = fetch_error(2).error;
    EXPECT_EQ(error.code, Code::kUnimplemented);
    EXPECT_EQ(error.type, wire::ErrorType::kNotImplementedError);
    EXPECT_EQ(error.location, 7u);
    for (const char* part : parts) {
      EXPECT_NE(error.message.find(part), std::string::npos) << part << ": " << error.message;
    }
    EXPECT_FALSE(sink.failure().has_value());
    batch.upload<float>(90, {5});
    EXPECT_EQ(fetch<float>(90, 1), (std::vector<float>{5}));
  }
};

TEST_F(SchemaMatch, AnotherSchemaIsRefusedWithBothVersionsAndTheServersSchema) {
  wire::OpTemplate relu = op("aten::relu", "", {tensor_arg({3})}, {new_output({3})});
  relu.schema_hash = 12345;
  record(relu);
  expect_refused({"aten::relu", "2.9.9", "the server's 2.", "aten::relu(Tensor self) -> Tensor",
                  "Install the same PyTorch"});
  EXPECT_EQ(fetch_error(2).error.arguments, "float32[3]");
  EXPECT_EQ(fetch_error(2).error.op, "aten::relu");
}

TEST_F(SchemaMatch, AnOpOfANewerPyTorchIsRefused) {
  record(op("aten::op_of_tomorrow", "Tensor", {tensor_arg({3})}, {new_output({3})}));
  expect_refused({"no op aten::op_of_tomorrow.Tensor", "2.9.9", "Install the same PyTorch"});
}

TEST_F(SchemaMatch, OpsThatReachOutsideTheSessionAreRefused) {
  record(op("profiler::_record_function_exit", "", {tensor_arg({3})}, {new_output({3})}));
  expect_refused({"not in a callable namespace"});
}

TEST_F(SchemaMatch, AFileOfTheServerIsRefused) {
  record(op("aten::from_file", "", {tensor_arg({3})}, {new_output({3})}));
  expect_refused({"may not be called remotely"});
}

TEST_F(SchemaMatch, AStorageArgumentIsRefused) {
  record(op("aten::set_", "source_Storage", {tensor_arg({3})}, {new_output({3})}));
  expect_refused({"takes a Storage, which cannot be sent"});
}

TEST_F(SchemaMatch, ARefusedOpPoisonsWhatItWouldHaveChanged) {
  const uint32_t number = batch.define(
      op("aten::op_of_tomorrow_", "", {tensor_arg({3})}, {output_of(OutputKind::kAlias)}));
  batch.upload<float>(1, {1, 2, 3}).upload<float>(2, {4}).record(number, {1});
  apply();
  EXPECT_EQ(fetch_error(1).error.code, Code::kUnimplemented);
  EXPECT_EQ(fetch<float>(2, 1), (std::vector<float>{4}));
}

TEST_F(SchemaMatch, ARefusedOpThatRepliesTellsItAtOnce) {
  wire::OpTemplate asks =
      op("aten::op_of_tomorrow", "", {tensor_arg({3})}, {output_of(OutputKind::kUnknown)});
  asks.replies = true;
  const uint32_t number = batch.define(asks);
  batch.upload<float>(1, {1, 2, 3}).record(number, {1, 2}, Bytes().add(uint64_t{77}));
  apply();
  EXPECT_EQ(sink.take(77).reply.error.code, Code::kUnimplemented);
  EXPECT_FALSE(sync().failed);
}

TEST_F(SchemaMatch, ArgumentsAddedWithDefaultsAreFilledIn) {
  record_scaled("aten::rgpu_scaled(Tensor self) -> Tensor", {tensor_arg({3})});
  EXPECT_EQ(fetch<float>(2, 3), (std::vector<float>{3, 6, 9}));
}

TEST_F(SchemaMatch, OneOfTwoAddedArgumentsMayBeKnown) {
  record_scaled("aten::rgpu_scaled(Tensor self, *, int factor=3) -> Tensor",
                {tensor_arg({3}), int_arg(5)});
  EXPECT_EQ(fetch<float>(2, 3), (std::vector<float>{5, 10, 15}));
}

TEST_F(SchemaMatch, AnArgumentAddedBeforeOutIsFilledIn) {
  wire::OpTemplate out = op("aten::rgpu_scaled", "out", {tensor_arg({3}), tensor_arg({3})},
                            {output_of(OutputKind::kAlias)});
  out.schema_hash = hash_of("aten::rgpu_scaled.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)");
  const uint32_t number = batch.define(out);
  batch.upload<float>(1, {1, 2, 3}).upload<float>(2, {0, 0, 0}).record(number, {1, 2});
  EXPECT_EQ(fetch<float>(2, 3), (std::vector<float>{3, 6, 9}));
}

TEST_F(SchemaMatch, AnotherDefaultIsAnotherSchema) {
  record_scaled("aten::rgpu_scaled(Tensor self, *, int factor=2) -> Tensor",
                {tensor_arg({3}), int_arg(2)});
  expect_refused({"aten::rgpu_scaled", "2.9.9"});
}

TEST_F(SchemaMatch, AnArgumentThatTheServerLacksIsRefused) {
  record_scaled(
      "aten::rgpu_scaled(Tensor self, *, int factor=3, Tensor? other=None, int more=0) -> Tensor",
      {tensor_arg({3}), int_arg(2), none_arg(), int_arg(0)});
  expect_refused({"aten::rgpu_scaled", "Tensor? other=None"});
}

}  // namespace
}  // namespace rgpu::server::testing
