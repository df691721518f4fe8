// What a correct client cannot have sent ends the session with a reason, and never the process.

#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::Command;
using wire::OutputKind;

class Malformed : public EngineFixture {};

TEST_F(Malformed, UnknownHandle) {
  batch.fetch(99, 1, 4);
  apply();
  expect_ended("unknown handle 99");
}

TEST_F(Malformed, FreeOfAnUnknownHandle) {
  batch.free(5);
  apply();
  expect_ended("unknown handle 5");
}

TEST_F(Malformed, HandleInUse) {
  batch.allocate(1, 8).allocate(1, 8);
  apply();
  expect_ended("handle 1 is in use already");
}

TEST_F(Malformed, UnknownTemplate) {
  batch.record(wire::kFirstTemplate + 3, {});
  apply();
  expect_ended("unknown template 3");
}

TEST_F(Malformed, ArgumentsThatDoNotFitTheSchema) {
  (void)batch.define(op("aten::relu", "", {int_arg(3)}, {new_output({3})}));
  apply();
  expect_ended("does not fit the schema");
}

TEST_F(Malformed, TooFewArguments) {
  (void)batch.define(op("aten::relu", "", {}, {new_output({3})}));
  apply();
  expect_ended("0 arguments where the schema has 1");
}

TEST_F(Malformed, TensorOutsideItsStorage) {
  const uint32_t relu = batch.define(op("aten::relu", "", {tensor_arg({4})}, {new_output({4})}));
  batch.upload<float>(1, {1, 2, 3}).record(relu, {1, 2});
  apply();
  expect_ended("float32[4] at offset 0 is outside its storage of 12 bytes");
}

TEST_F(Malformed, OffsetOutsideTheStorage) {
  const uint32_t zero =
      batch.define(op("aten::zero_", "", {tensor_arg({1}, kFloat, wire::TensorMeta::kHasOffset)},
                      {output_of(OutputKind::kAlias)}));
  batch.upload<float>(1, {1, 2, 3}).record(zero, {1}, Bytes().add(INT64_MAX));
  apply();
  expect_ended("outside its storage");
}

TEST_F(Malformed, DtypeThatDoesNotExist) {
  (void)batch.define(op("aten::relu", "", {tensor_arg({3}, 120)}, {new_output({3})}));
  apply();
  expect_ended("dtype 120 is not supported");
}

TEST_F(Malformed, GeometryThatOverflows) {
  wire::Arg huge = tensor_arg({2});  // Addressable in elements, and not in bytes.
  huge.tensor.strides = {INT64_MAX / 2};
  (void)batch.define(op("aten::relu", "", {huge}, {new_output({3})}));
  apply();
  expect_ended("too large to address");
}

TEST_F(Malformed, FetchBeyondTheStorage) {
  batch.upload<float>(1, {1, 2}).fetch(1, 1, 8, 4);
  apply();
  expect_ended("fetch: 8 bytes at 4 of a storage of 8 bytes");
}

TEST_F(Malformed, UploadBeyondTheStorage) {
  batch.allocate(1, 4).upload<float>(1, {1, 2});
  apply();
  expect_ended("upload: 8 bytes at 0 of a storage of 4 bytes");
}

TEST_F(Malformed, UploadWithoutItsSegment) {
  batch.command(Command::kUpload, {1}, Bytes().add(uint64_t{4}).add(uint64_t{0}).add(uint64_t{4}));
  apply();
  expect_ended("an upload without a payload segment of its size");
}

TEST_F(Malformed, StreamOverTheLimit) {
  batch.stream(100000);
  apply();
  expect_ended("stream 100000 is one of device 1562, but the server has 1 device");
}

TEST_F(Malformed, AGraphWhereATensorIsDue) {
  wire::OpTemplate forward =
      op("aten::mul", "Tensor",
         {tensor_arg({2}, kFloat, wire::TensorMeta::kRequiresGrad), tensor_arg({2})},
         {new_output({2}), output_of(OutputKind::kOpaque)});
  forward.keeps_graph = true;
  const uint32_t mul = batch.define(forward);
  const uint32_t relu = batch.define(op("aten::relu", "", {tensor_arg({2})}, {new_output({2})}));
  batch.upload<float>(1, {1, 2}).record(mul, {1, 1, 2, 3}).record(relu, {3, 4});
  apply();
  expect_ended("a graph is no tensor");
}

TEST_F(Malformed, NothingMoreIsExecutedAfterwards) {
  batch.upload<float>(1, {1}).free(7);
  apply();
  batch.fetch(1, 55, 4);
  apply();
  expect_ended("unknown handle 7");
  EXPECT_LT(sink.applied(), 2u);
}

}  // namespace
}  // namespace rgpu::server::testing
