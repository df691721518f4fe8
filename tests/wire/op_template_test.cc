// Round trips, the counts a template derives for its records, and every rule from both sides.
#include "wire/op_template.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/wire/raw_body.h"
#include "wire/limits.h"

namespace rgpu::wire {
namespace {

Arg arg_of(ArgKind kind) {
  Arg arg;
  arg.kind = kind;
  if (kind == ArgKind::kComplex) arg.reals = {1.5, -2.5};
  return arg;
}

Arg tensor_arg(std::vector<int64_t> sizes, std::vector<int64_t> strides, uint8_t flags = 0) {
  Arg arg = arg_of(ArgKind::kTensor);
  arg.tensor = {
      .dtype = 6, .flags = flags, .sizes = std::move(sizes), .strides = std::move(strides)};
  return arg;
}

Arg list_of(ArgKind kind, std::vector<Arg> items) {
  Arg arg = arg_of(kind);
  arg.items = std::move(items);
  return arg;
}

// A COO tensor of 4 rows and 3 columns.
Arg sparse_arg(std::vector<int64_t> integers = {1, 1}) {
  Arg arg = list_of(ArgKind::kSparse,
                    {tensor_arg({2, 5}, {5, 1}), tensor_arg({5}, {1}, TensorMeta::kHasOffset)});
  arg.tensor = {6, 0, {4, 3}, {0, 0}};
  arg.integers = std::move(integers);
  return arg;
}

OpTemplate named(std::vector<Arg> args, std::vector<Output> outputs = {}) {
  OpTemplate op;
  op.name = "aten::test";
  op.args = std::move(args);
  op.outputs = std::move(outputs);
  return op;
}

// Uses every kind of argument and of output, and every flag.
OpTemplate full_template() {
  OpTemplate op = named({
      arg_of(ArgKind::kNone),
      tensor_arg({2, 3}, {3, 1}, TensorMeta::kHasOffset | TensorMeta::kRequiresGrad),
      tensor_arg({}, {}, TensorMeta::kConj | TensorMeta::kNeg | TensorMeta::kWrappedNumber),
      arg_of(ArgKind::kHostScalar),
      arg_of(ArgKind::kScalarInt),
      arg_of(ArgKind::kScalarDouble),
      arg_of(ArgKind::kScalarComplex),
      arg_of(ArgKind::kScalarBool),
      arg_of(ArgKind::kBool),
      arg_of(ArgKind::kInt),
      arg_of(ArgKind::kDouble),
      arg_of(ArgKind::kString),
      arg_of(ArgKind::kDevice),
      arg_of(ArgKind::kIntList),
      arg_of(ArgKind::kDoubleList),
      arg_of(ArgKind::kBoolList),
      list_of(ArgKind::kTensorList,
              {tensor_arg({4}, {1}), arg_of(ArgKind::kNone), arg_of(ArgKind::kHostScalar),
               tensor_arg({4}, {2}, TensorMeta::kHasOffset)}),
      list_of(ArgKind::kScalarList,
              {arg_of(ArgKind::kScalarInt), arg_of(ArgKind::kScalarDouble),
               arg_of(ArgKind::kScalarComplex), arg_of(ArgKind::kScalarBool)}),
      arg_of(ArgKind::kComplex),
      sparse_arg(),
      list_of(ArgKind::kTensorList, {sparse_arg({1, 0}), tensor_arg({4}, {1})}),
  });
  op.args[8].integer = 1;
  op.args[9].integer = INT64_MIN;
  op.args[10].real = -0.0;
  op.args[11].text = std::string("none\0sum", 8);
  op.args[12].integer = 3;
  op.args[13].integers = {-1, 0, INT64_MAX};
  op.args[14].reals = {0.0, -1e300};
  op.args[15].integers = {0, 1, 1};
  op.overload = "Tensor_out";
  op.schema_hash = 0xfedcba9876543210;
  op.outputs = {{OutputKind::kNew, {6, 0, {2, 3}, {1, 2}}},
                {OutputKind::kAlias, {}},
                {OutputKind::kNone, {}},
                {OutputKind::kUnknown, {}},
                {OutputKind::kAnyLayout, {}},
                {OutputKind::kOpaque, {}}};
  op.random = true;
  op.replies = true;
  op.keeps_graph = true;
  op.default_dtype = 7;
  return op;
}

std::string rule_broken(const OpTemplate& op) {
  const Status status = check_op_template(op);
  EXPECT_TRUE(status || status.code() == Code::kInvalidArgument);
  return status.message();
}

std::string decode_error(std::span<const std::byte> bytes) {
  const auto op = decode_op_template(bytes);
  if (op) return "";
  EXPECT_EQ(op.error().code(), Code::kInvalidArgument);
  return op.error().message();
}

TEST(OpTemplate, EverythingRoundTrips) {
  const OpTemplate op = full_template();
  ASSERT_EQ(rule_broken(op), "");
  const auto decoded = decode_op_template(encode_op_template(op));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(*decoded, op);
  EXPECT_TRUE(std::signbit(decoded->args[10].real));
}

TEST(OpTemplate, SmallestRoundTrips) {
  const OpTemplate op = named({});
  const auto decoded = decode_op_template(encode_op_template(op));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, op);
}

TEST(OpTemplate, NanRoundTrips) {
  Arg arg = arg_of(ArgKind::kDouble);
  arg.real = std::nan("");
  const auto decoded = decode_op_template(encode_op_template(named({arg})));
  ASSERT_TRUE(decoded);
  EXPECT_TRUE(std::isnan(decoded->args[0].real));
}

TEST(OpTemplate, BytesNeedNoAlignment) {
  const OpTemplate op = full_template();
  const auto bytes = encode_op_template(op);
  for (size_t misalignment = 0; misalignment < 8; ++misalignment) {
    PlacedBody placed(bytes, misalignment);
    const auto decoded = decode_op_template(placed.bytes());
    ASSERT_TRUE(decoded) << misalignment;
    EXPECT_EQ(*decoded, op);
  }
}

TEST(OpTemplate, EncodingIsAFunctionOfTheValue) {
  EXPECT_EQ(encode_op_template(full_template()), encode_op_template(full_template()));
}

TEST(OpTemplate, RandomOnesRoundTrip) {
  std::mt19937_64 random(1);
  const auto below = [&](uint64_t end) { return random() % end; };
  for (int round = 0; round < 200; ++round) {
    OpTemplate op = named({});
    const OpTemplate all = full_template();
    for (uint64_t i = below(12); i > 0; --i) op.args.push_back(all.args[below(all.args.size())]);
    for (uint64_t i = below(5); i > 0; --i) op.outputs.push_back(all.outputs[below(3)]);
    op.random = below(2) == 0;
    op.replies = below(2) == 0;
    op.schema_hash = random();
    const auto decoded = decode_op_template(encode_op_template(op));
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, op);
  }
}

TEST(OpTemplate, HandlesAreTensorsAndNewOutputs) {
  EXPECT_EQ(named({}).handle_count(), 0u);
  const OpTemplate op = full_template();
  EXPECT_EQ(op.new_handle_count(), 6u);  // kNew, kUnknown, kOpaque, and three of kAnyLayout.
  // Two tensors, two in a list, two components, three in the other list, the outputs.
  EXPECT_EQ(op.handle_count(), 2u + 2u + 2u + 3u + 6u);
}

TEST(OpTemplate, ImmediatesAreAsTheHeaderSays) {
  const auto size_of = [](const Arg& arg) { return named({arg}).immediates_size_bytes(); };
  EXPECT_EQ(size_of(tensor_arg({1}, {1})), 0u);
  EXPECT_EQ(size_of(tensor_arg({1}, {1}, TensorMeta::kHasOffset)), 8u);
  EXPECT_EQ(size_of(arg_of(ArgKind::kHostScalar)), 16u);
  EXPECT_EQ(size_of(arg_of(ArgKind::kScalarInt)), 8u);
  EXPECT_EQ(size_of(arg_of(ArgKind::kScalarBool)), 8u);
  EXPECT_EQ(size_of(arg_of(ArgKind::kScalarDouble)), 8u);
  EXPECT_EQ(size_of(arg_of(ArgKind::kScalarComplex)), 16u);
  for (const ArgKind kind : {ArgKind::kNone, ArgKind::kBool, ArgKind::kInt, ArgKind::kDouble,
                             ArgKind::kString, ArgKind::kDevice, ArgKind::kIntList,
                             ArgKind::kDoubleList, ArgKind::kBoolList, ArgKind::kComplex}) {
    EXPECT_EQ(size_of(arg_of(kind)), 0u) << static_cast<int>(kind);
  }
  OpTemplate op = named({});
  op.random = true;
  EXPECT_EQ(op.immediates_size_bytes(), 16u);
  op.replies = true;
  EXPECT_EQ(op.immediates_size_bytes(), 24u);
  // Offset; host scalar; int, double, complex, bool; a list's offset; a list's scalars; the offsets
  // of two sparse tensors' values; the rest.
  EXPECT_EQ(full_template().immediates_size_bytes(), 8u + 16u + 40u + (16u + 8u) + 40u + 16u + 24u);
}

TEST(OpTemplateRules, Names) {
  OpTemplate op = named({});
  op.name = std::string(limits::kNameSizeBytesMax, 'x');
  op.overload = op.name;
  EXPECT_EQ(rule_broken(op), "");
  op.overload += 'x';
  EXPECT_EQ(rule_broken(op), "the overload: 257 bytes are over the limit of 256");
  op.overload.clear();
  op.name += 'x';
  EXPECT_EQ(rule_broken(op), "the op's name: 257 bytes are over the limit of 256");
  op.name.clear();
  EXPECT_EQ(rule_broken(op), "the op has no name");
  op.name = "aten::\x1b[2J";
  EXPECT_EQ(rule_broken(op), "the op's name is not printable");
}

TEST(OpTemplateRules, Strings) {
  Arg arg = arg_of(ArgKind::kString);
  arg.text.assign(limits::kStringSizeBytesMax, 's');
  EXPECT_EQ(rule_broken(named({arg})), "");
  arg.text += 's';
  EXPECT_EQ(rule_broken(named({arg})),
            "aten::test, argument 0: a string: 65537 bytes are over the limit of 65536");
}

TEST(OpTemplateRules, Dimensions) {
  const std::vector<int64_t> ones(limits::kDimensionsMax, 1);
  EXPECT_EQ(rule_broken(named({tensor_arg(ones, ones)})), "");
  const std::vector<int64_t> more(limits::kDimensionsMax + 1, 1);
  EXPECT_EQ(rule_broken(named({tensor_arg(more, more)})),
            "aten::test, argument 0: a tensor has 65 dimensions; the limit is 64");
  EXPECT_EQ(rule_broken(named({tensor_arg({2, 3}, {1})})),
            "aten::test, argument 0: a tensor has 2 sizes but 1 strides");
}

TEST(OpTemplateRules, SizesAndStrides) {
  const std::string prefix = "aten::test, argument 0: a tensor has ";
  const auto broken = [](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return rule_broken(named({tensor_arg(std::move(sizes), std::move(strides))}));
  };
  EXPECT_EQ(broken({0, 5}, {0, 0}), "");
  EXPECT_EQ(broken({-1}, {1}), prefix + "a negative size or stride");
  EXPECT_EQ(broken({1}, {-1}), prefix + "a negative size or stride");
  EXPECT_EQ(broken({INT64_MAX}, {1}), "");
  const std::string too_large = prefix + "2^63 elements or more, or reaches so far";
  const int64_t large = int64_t{1} << 32;
  EXPECT_EQ(broken({large, large / 4}, {0, 0}), "");
  EXPECT_EQ(broken({large, large}, {0, 0}), too_large);
  EXPECT_EQ(broken({0, large, large}, {0, 0, 0}), too_large);
  EXPECT_EQ(broken({2, 2}, {INT64_MAX, 0}), "");
  EXPECT_EQ(broken({2, 2}, {INT64_MAX, 1}), too_large);
  EXPECT_EQ(broken({3}, {INT64_MAX / 2 + 1}), too_large);
  EXPECT_EQ(broken({1}, {INT64_MAX}), "");
}

TEST(OpTemplateRules, DtypesAndFlags) {
  Arg arg = tensor_arg({}, {});
  arg.tensor.dtype = 0;
  EXPECT_EQ(rule_broken(named({arg})), "");
  arg.tensor.dtype = -1;
  EXPECT_EQ(rule_broken(named({arg})), "aten::test, argument 0: a tensor's dtype is negative");
  arg.tensor.dtype = 127;
  arg.tensor.flags = 31;
  EXPECT_EQ(rule_broken(named({arg})), "");
  arg.tensor.flags = 32;
  EXPECT_EQ(rule_broken(named({arg})), "aten::test, argument 0: a tensor has an unknown flag");
}

TEST(OpTemplateRules, Kinds) {
  EXPECT_EQ(rule_broken(named({arg_of(static_cast<ArgKind>(19))})),
            "aten::test, argument 0: an argument's kind is unknown");
  EXPECT_EQ(rule_broken(named({}, {{static_cast<OutputKind>(6), {}}})),
            "aten::test, output 0: an output's kind is unknown");
}

TEST(OpTemplateRules, Values) {
  Arg arg = arg_of(ArgKind::kBool);
  arg.integer = 2;
  EXPECT_EQ(rule_broken(named({arg})), "aten::test, argument 0: a bool is neither 0 nor 1");
  arg = arg_of(ArgKind::kBoolList);
  arg.integers = {0, 1, -1};
  EXPECT_EQ(rule_broken(named({arg})),
            "aten::test, argument 0: a bool of a list is neither 0 nor 1");
  arg = arg_of(ArgKind::kComplex);
  arg.reals.pop_back();
  EXPECT_EQ(rule_broken(named({arg})),
            "aten::test, argument 0: a complex number has not exactly two parts");
  arg = arg_of(ArgKind::kDevice);
  for (const int64_t index : {-1, 0, 127}) {
    arg.integer = index;
    EXPECT_EQ(rule_broken(named({arg})), "");
  }
  for (const int64_t index : {-2, 128}) {
    arg.integer = index;
    EXPECT_EQ(rule_broken(named({arg})), "aten::test, argument 0: a device index is out of range");
  }
}

TEST(OpTemplateRules, ListsHoldTheirOwnKind) {
  const std::string prefix = "aten::test, argument 0: ";
  EXPECT_EQ(rule_broken(named({list_of(ArgKind::kTensorList, {arg_of(ArgKind::kScalarInt)})})),
            prefix + "a list of tensors holds something else");
  EXPECT_EQ(rule_broken(named({list_of(ArgKind::kScalarList, {tensor_arg({}, {})})})),
            prefix + "a list of scalars holds something else");
  EXPECT_EQ(rule_broken(named({list_of(ArgKind::kScalarList, {arg_of(ArgKind::kNone)})})),
            prefix + "a list of scalars holds something else");
  EXPECT_EQ(rule_broken(named({list_of(ArgKind::kInt, {arg_of(ArgKind::kInt)})})),
            prefix + "an argument that is no list has items");
}

TEST(OpTemplateRules, Depth) {
  Arg arg = arg_of(ArgKind::kTensorList);
  for (uint32_t depth = 0; depth < limits::kArgDepthMax; ++depth) {
    arg = list_of(ArgKind::kTensorList, {arg});
  }
  EXPECT_EQ(rule_broken(named({arg})),
            "aten::test, argument 0: a list of tensors holds something else");
  EXPECT_EQ(rule_broken(named({list_of(ArgKind::kTensorList, {arg})})),
            "aten::test, argument 0: lists nest deeper than 3");
}

TEST(OpTemplateRules, SparseTensors) {
  const std::string prefix = "aten::test, argument 0: a sparse tensor";
  EXPECT_EQ(rule_broken(named({sparse_arg()})), "");
  for (const int64_t layout : {0, 3, 7, -1}) {
    EXPECT_EQ(rule_broken(named({sparse_arg({layout, 0})})), prefix + "'s layout is unknown");
  }
  for (const int64_t layout : {2, 4, 5, 6}) {
    Arg compressed = sparse_arg({layout, 0});
    EXPECT_EQ(rule_broken(named({compressed})), prefix + " has a wrong number of components");
    compressed.items.push_back(tensor_arg({5}, {1}));
    EXPECT_EQ(rule_broken(named({compressed})), "");
  }
  const std::string form = prefix + " does not tell its layout and whether it is coalesced";
  EXPECT_EQ(rule_broken(named({sparse_arg({1})})), form);
  EXPECT_EQ(rule_broken(named({sparse_arg({1, 2})})), form);
  Arg strided = sparse_arg();
  strided.tensor.strides = {3, 1};
  EXPECT_EQ(rule_broken(named({strided})), prefix + " has strides");
  Arg nested = sparse_arg();
  nested.items[1] = sparse_arg();
  EXPECT_EQ(rule_broken(named({nested})), prefix + "'s component is no tensor");
  Arg broken = sparse_arg();
  broken.items[1].tensor.sizes[0] = -1;
  EXPECT_EQ(rule_broken(named({broken})),
            "aten::test, argument 0: a tensor has a negative size or stride");
}

TEST(OpTemplateRules, OutputsThatNeedSomethingElse) {
  OpTemplate op = named({}, {{OutputKind::kUnknown, {}}});
  EXPECT_EQ(rule_broken(op), "aten::test, output 0: an output of unknown geometry needs a reply");
  op.replies = true;
  EXPECT_EQ(rule_broken(op), "");
  op.outputs[0].kind = OutputKind::kAnyLayout;
  EXPECT_EQ(rule_broken(op), "");
  op.replies = false;
  EXPECT_EQ(rule_broken(op), "aten::test, output 0: an output of unknown geometry needs a reply");
  op.replies = true;
  op.keeps_graph = true;
  EXPECT_EQ(rule_broken(op), "aten::test: keeps_graph needs an opaque last output");
  op.outputs.push_back({OutputKind::kOpaque, {}});
  EXPECT_EQ(rule_broken(op), "");
  op.outputs.clear();
  EXPECT_EQ(rule_broken(op), "aten::test: keeps_graph needs an opaque last output");
}

TEST(OpTemplateRules, HandleCount) {
  OpTemplate op =
      named({list_of(ArgKind::kTensorList,
                     std::vector<Arg>(limits::kHandlesPerRecordMax - 1, tensor_arg({}, {})))},
            {{OutputKind::kNew, {}}});
  EXPECT_EQ(rule_broken(op), "");
  op.outputs.push_back({OutputKind::kOpaque, {}});
  EXPECT_EQ(rule_broken(op), "aten::test: over 65536 handles in a record");
}

TEST(OpTemplateRules, ImmediatesSize) {
  OpTemplate op =
      named({list_of(ArgKind::kScalarList, std::vector<Arg>(limits::kImmediatesSizeBytesMax / 16,
                                                            arg_of(ArgKind::kScalarComplex)))});
  EXPECT_EQ(rule_broken(op), "");
  op.replies = true;
  EXPECT_EQ(rule_broken(op), "aten::test: immediates: 1048584 bytes are over the limit of 1048576");
}

TEST(OpTemplateDeathTest, EncodeWantsTheRulesKept) {
  EXPECT_DEATH((void)encode_op_template(OpTemplate{}), "check_op_template");
}

// ---- Bodies that no encoder writes --------------------------------------------------------------

TEST(OpTemplateDecode, SizeHasALimit) {
  std::vector<std::byte> bytes = encode_op_template(full_template());
  bytes.resize(limits::kTemplateSizeBytesMax);
  EXPECT_EQ(decode_error(bytes), "");
  bytes.push_back(std::byte{0});
  EXPECT_EQ(decode_error(bytes), "op template: 1048577 bytes are over the limit of 1048576");
}

TEST(OpTemplateDecode, ForeignBytesDoNotVerify) {
  EXPECT_EQ(decode_error({}), "op template: the body does not verify");
  EXPECT_EQ(decode_error(std::vector<std::byte>(100, std::byte{0x7f})),
            "op template: the body does not verify");
}

// The body of an OpTemplate with one argument.
std::vector<std::byte> with_arg(Builder& builder, Part arg) {
  const Part args = vector_of(builder, std::vector<Part>{arg});
  const Part name = text(builder, "aten::test");
  return finish(builder, table(builder, {part(0, name), part(3, args)}));
}

TEST(OpTemplateDecode, HoldsTheRules) {
  Builder builder;
  EXPECT_EQ(decode_error(with_arg(builder, table(builder, {scalar<uint8_t>(0, 99)}))),
            "op template: aten::test, argument 0: an argument's kind is unknown");
  builder.Clear();
  EXPECT_EQ(decode_error(finish(builder, table(builder, {}))), "op template: the op has no name");
}

TEST(OpTemplateDecode, TensorsMustHaveTheirMeta) {
  const std::string missing = "op template: a tensor has no description";
  for (const uint8_t kind : {uint8_t{1}, uint8_t{2}}) {
    Builder builder;
    EXPECT_EQ(decode_error(with_arg(builder, table(builder, {scalar(0, kind)}))), missing);
  }
  Builder builder;
  const Part item = table(builder, {scalar<uint8_t>(0, 1)});
  const Part items = vector_of(builder, std::vector<Part>{item});
  EXPECT_EQ(
      decode_error(with_arg(builder, table(builder, {scalar<uint8_t>(0, 15), part(7, items)}))),
      missing);
  builder.Clear();
  const Part outputs = vector_of(builder, std::vector<Part>{table(builder, {})});
  const Part name = text(builder, "aten::test");
  EXPECT_EQ(decode_error(finish(builder, table(builder, {part(0, name), part(4, outputs)}))),
            missing);
}

TEST(OpTemplateDecode, VerifierDepthHasALimit) {
  const auto nested = [](int depth) {
    Builder builder;
    Part arg = table(builder, {scalar<uint8_t>(0, 15)});
    for (int i = 1; i < depth; ++i) {
      const Part items = vector_of(builder, std::vector<Part>{arg});
      arg = table(builder, {scalar<uint8_t>(0, 15), part(7, items)});
    }
    return with_arg(builder, arg);
  };
  EXPECT_EQ(decode_error(nested(15)),
            "op template: aten::test, argument 0: lists nest deeper than 3");
  EXPECT_EQ(decode_error(nested(16)), "op template: the body does not verify");
}

TEST(OpTemplateDecode, SharedPartsDoNotUnfold) {
  Builder builder;
  const Part integers = vector_of(builder, std::vector<int64_t>(1000));
  const Part arg = table(builder, {scalar<uint8_t>(0, 12), part(4, integers)});
  const Part args = vector_of(builder, std::vector<Part>(1000, arg));
  const Part name = text(builder, "aten::test");
  EXPECT_EQ(decode_error(finish(builder, table(builder, {part(0, name), part(3, args)}))),
            "op template: it unfolds into more than was sent");
}

TEST(OpTemplateDecode, DamagedBodiesNeverCrash) {
  const auto bytes = encode_op_template(full_template());
  for_every_damage(bytes, [](std::span<const std::byte> damaged) {
    const auto op = decode_op_template(damaged);
    EXPECT_TRUE(!op || check_op_template(*op));
  });
}

}  // namespace
}  // namespace rgpu::wire
