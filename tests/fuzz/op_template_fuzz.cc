// What decodes keeps the rules, and its own encoding decodes to the same bytes again. (Bytes, since
// a NaN does not equal itself.)
#include "wire/limits.h"
#include "wire/op_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace rgpu::wire;
  const auto op = decode_op_template(std::as_bytes(std::span(data, size_bytes)));
  if (!op) return 0;
  RGPU_CHECK(check_op_template(*op).ok());
  RGPU_CHECK(op->new_handle_count() <= op->handle_count());
  RGPU_CHECK(op->handle_count() <= rgpu::limits::kHandlesPerRecordMax);
  RGPU_CHECK(op->immediates_size_bytes() <= rgpu::limits::kImmediatesSizeBytesMax);
  const auto bytes = encode_op_template(*op);
  if (bytes.size() > rgpu::limits::kTemplateSizeBytesMax) return 0;
  const auto again = decode_op_template(bytes);
  RGPU_CHECK(again.has_value());
  RGPU_CHECK(encode_op_template(*again) == bytes);
  return 0;
}
