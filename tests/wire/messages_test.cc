// Round trips of the bodies that are no batch, and every limit of theirs from both sides.
#include "wire/messages.h"

#include <gtest/gtest.h>

#include "tests/wire/raw_body.h"
#include "wire/limits.h"

namespace rgpu::wire {
namespace {

std::vector<std::byte> some_bytes(size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<std::byte>(i + 1);
  return bytes;
}

template <typename T>
std::string error_of(const Result<T>& result) {
  if (result) return "";
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  return result.error().message();
}

Hello full_hello() {
  return {.protocol_version = 1,
          .capabilities = uint64_t{1} << 63,
          .client_version = "0.1.0",
          .torch_version = "2.13.0+cpu",
          .token_proof = some_bytes(64),
          .resume_session = some_bytes(16),
          .batches_sent = 77,
          .cuda = CudaHello{{uint64_t{1} << 44, uint64_t{3} << 44}, uint64_t{1} << 40}};
}

HelloReply full_hello_reply() {
  return {.code = Code::kOk,
          .message = "welcome",
          .protocol_version = 1,
          .capabilities = 5,
          .server_version = "0.1.0",
          .torch_version = "2.12.0",
          .session_id = some_bytes(16),
          .batches_applied = 76,
          .device_type = "cuda",
          .devices = {{"NVIDIA H200", uint64_t{141} << 30}, {"", 0}},
          .cuda = CudaInfo{13000,
                           true,
                           uint64_t{3} << 44,
                           uint64_t{1} << 40,
                           {{"rgpu", some_bytes(16), uint64_t{8} << 30, {0, 1024, -1}}}}};
}

Arg value_of(ArgKind kind, int64_t integer, double real = 0) {
  Arg arg;
  arg.kind = kind;
  arg.integer = integer;
  arg.real = real;
  return arg;
}

Reply full_reply() {
  Reply reply;
  reply.request = 9;
  reply.metas = {{6, 0, {2, 3}, {3, 1}}, {4, 0, {}, {}}};
  reply.values = {value_of(ArgKind::kBool, 1), value_of(ArgKind::kInt, -5),
                  value_of(ArgKind::kDouble, 0, -0.0), value_of(ArgKind::kComplex, 0)};
  reply.values.back().reals = {1, 2};
  Arg dense = value_of(ArgKind::kTensor, 0);
  dense.tensor = {6, 0, {5}, {1}};
  Arg sparse = value_of(ArgKind::kSparse, 0);
  sparse.tensor = {6, 0, {4, 3}, {0, 0}};
  sparse.integers = {1, 0};
  sparse.items = {dense, dense};
  reply.results = {Arg(), dense, sparse};
  reply.payload_size_bytes = 24;
  reply.server_busy_ns = 100;
  reply.server_idle_ns = 200;
  return reply;
}

Reply failed_reply() {
  Reply reply;
  reply.request = 10;
  reply.failed = true;
  reply.error = {.code = Code::kDevice,
                 .type = ErrorType::kOutOfMemoryError,
                 .message = "index 5 is out of range",
                 .op = "aten::embedding",
                 .arguments = "float32[3, 3], int64[1]",
                 .location = 4000000000u};
  return reply;
}

TEST(Hello, RoundTrips) {
  const Hello hello = full_hello();
  const auto decoded = decode_hello(encode(hello));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->protocol_version, hello.protocol_version);
  EXPECT_EQ(decoded->capabilities, hello.capabilities);
  EXPECT_EQ(decoded->client_version, hello.client_version);
  EXPECT_EQ(decoded->torch_version, hello.torch_version);
  EXPECT_EQ(decoded->token_proof, hello.token_proof);
  EXPECT_EQ(decoded->resume_session, hello.resume_session);
  EXPECT_EQ(decoded->batches_sent, hello.batches_sent);
  EXPECT_EQ(decoded->cuda, hello.cuda);
}

TEST(Hello, EmptyRoundTrips) {
  const auto decoded = decode_hello(encode(Hello{}));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->client_version, "");
  EXPECT_TRUE(decoded->token_proof.empty());
  EXPECT_TRUE(decoded->resume_session.empty());
}

TEST(HelloReply, RoundTrips) {
  const HelloReply reply = full_hello_reply();
  const auto decoded = decode_hello_reply(encode(reply));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->code, reply.code);
  EXPECT_EQ(decoded->message, reply.message);
  EXPECT_EQ(decoded->protocol_version, reply.protocol_version);
  EXPECT_EQ(decoded->capabilities, reply.capabilities);
  EXPECT_EQ(decoded->server_version, reply.server_version);
  EXPECT_EQ(decoded->torch_version, reply.torch_version);
  EXPECT_EQ(decoded->session_id, reply.session_id);
  EXPECT_EQ(decoded->batches_applied, reply.batches_applied);
  EXPECT_EQ(decoded->device_type, reply.device_type);
  EXPECT_EQ(decoded->cuda, reply.cuda);
  ASSERT_EQ(decoded->devices.size(), 2u);
  EXPECT_EQ(decoded->devices[0].name, "NVIDIA H200");
  EXPECT_EQ(decoded->devices[0].memory_size_bytes, uint64_t{141} << 30);
}

TEST(HelloReply, ARefusalNeedsNoSessionId) {
  HelloReply refusal;
  refusal.code = Code::kExhausted;
  refusal.message = "too many sessions";
  const auto decoded = decode_hello_reply(encode(refusal));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->code, Code::kExhausted);
  EXPECT_EQ(decoded->message, "too many sessions");
}

TEST(Reply, RoundTrips) {
  const Reply reply = full_reply();
  const auto decoded = decode_reply(encode(reply));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->request, reply.request);
  EXPECT_FALSE(decoded->failed);
  EXPECT_EQ(decoded->metas, reply.metas);
  EXPECT_EQ(decoded->values, reply.values);
  EXPECT_EQ(decoded->results, reply.results);
  EXPECT_EQ(decoded->payload_size_bytes, reply.payload_size_bytes);
  EXPECT_EQ(decoded->server_busy_ns, reply.server_busy_ns);
  EXPECT_EQ(decoded->server_idle_ns, reply.server_idle_ns);
}

TEST(Reply, ErrorsRoundTrip) {
  const Reply reply = failed_reply();
  const auto decoded = decode_reply(encode(reply));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_TRUE(decoded->failed);
  EXPECT_EQ(decoded->error.code, reply.error.code);
  EXPECT_EQ(decoded->error.type, reply.error.type);
  EXPECT_EQ(decoded->error.message, reply.error.message);
  EXPECT_EQ(decoded->error.op, reply.error.op);
  EXPECT_EQ(decoded->error.arguments, reply.error.arguments);
  EXPECT_EQ(decoded->error.location, reply.error.location);
}

TEST(Goodbye, RoundTrips) {
  const auto decoded = decode_goodbye(encode(Goodbye{Code::kInternal, "the worker crashed"}));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->code, Code::kInternal);
  EXPECT_EQ(decoded->message, "the worker crashed");
  EXPECT_EQ(decode_goodbye(encode(Goodbye{}))->code, Code::kOk);
}

TEST(Messages, BodiesNeedNoAlignment) {
  const auto hello = encode(full_hello());
  const auto hello_reply = encode(full_hello_reply());
  const auto reply = encode(full_reply());
  const auto goodbye = encode(Goodbye{Code::kOk, "done"});
  for (size_t misalignment = 0; misalignment < 8; ++misalignment) {
    EXPECT_TRUE(decode_hello(PlacedBody(hello, misalignment).bytes()));
    EXPECT_TRUE(decode_hello_reply(PlacedBody(hello_reply, misalignment).bytes()));
    EXPECT_TRUE(decode_reply(PlacedBody(reply, misalignment).bytes()));
    EXPECT_TRUE(decode_goodbye(PlacedBody(goodbye, misalignment).bytes()));
  }
}

TEST(Messages, TextForPeopleIsCutBetweenCharacters) {
  std::string message(limits::kStringSizeBytesMax - 1, 'x');
  message += "\xc3\xa9tail";  // The last byte that fits is the first of two.
  const auto decoded = decode_goodbye(encode(Goodbye{Code::kInternal, message}));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->message, std::string(limits::kStringSizeBytesMax - 1, 'x'));

  Reply reply = failed_reply();
  reply.error.message.assign(limits::kStringSizeBytesMax + 1, 'm');
  reply.error.arguments = reply.error.message;
  reply.error.op = reply.error.message;
  const auto cut = decode_reply(encode(reply));
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->error.message.size(), limits::kStringSizeBytesMax);
  EXPECT_EQ(cut->error.arguments.size(), limits::kStringSizeBytesMax);
  EXPECT_EQ(cut->error.op.size(), limits::kNameSizeBytesMax);
}

TEST(MessagesDeathTest, EncodersRefuseWhatADecoderWouldRefuse) {
  Hello hello = full_hello();
  hello.token_proof.push_back(std::byte{0});
  EXPECT_DEATH((void)encode(hello), "token_proof");
  hello = full_hello();
  hello.resume_session.pop_back();
  EXPECT_DEATH((void)encode(hello), "resume_session");
  EXPECT_DEATH((void)encode(HelloReply{}), "session_id");
  Reply reply = failed_reply();
  reply.error.code = Code::kOk;
  EXPECT_DEATH((void)encode(reply), "error.code");
  reply = full_reply();
  reply.values[0].kind = ArgKind::kDevice;
  EXPECT_DEATH((void)encode(reply), "check_value");
  reply = full_reply();
  reply.metas[0].sizes[0] = -1;
  EXPECT_DEATH((void)encode(reply), "check_meta");
  reply = full_reply();
  reply.results[2].items.pop_back();
  EXPECT_DEATH((void)encode(reply), "check_result");
}

// ---- Bodies that no encoder writes --------------------------------------------------------------

TEST(MessagesDecode, ForeignBytesDoNotVerify) {
  const std::vector<std::byte> foreign(100, std::byte{0x7f});
  EXPECT_EQ(error_of(decode_hello(foreign)), "hello: the body does not verify");
  EXPECT_EQ(error_of(decode_hello_reply(foreign)), "hello reply: the body does not verify");
  EXPECT_EQ(error_of(decode_reply(foreign)), "reply: the body does not verify");
  EXPECT_EQ(error_of(decode_goodbye(foreign)), "goodbye: the body does not verify");
  EXPECT_EQ(error_of(decode_goodbye({})), "goodbye: the body does not verify");
}

TEST(MessagesDecode, BodySizeHasALimit) {
  std::vector<std::byte> body = encode(Goodbye{});
  body.resize(limits::kBodySizeBytesMax);
  EXPECT_EQ(error_of(decode_goodbye(body)), "");
  body.resize(limits::kBodySizeBytesMax + 1);
  EXPECT_EQ(error_of(decode_goodbye(body)), "goodbye: the body is over 16777216 bytes");
}

// A table with one string or byte vector, `size_bytes` long, in the given field.
std::vector<std::byte> with_text(unsigned position, size_t size_bytes) {
  Builder builder;
  const Part value = text(builder, std::string(size_bytes, 'x'));
  return finish(builder, table(builder, {part(position, value)}));
}

std::vector<std::byte> with_bytes(unsigned position, size_t size_bytes) {
  Builder builder;
  const Part value = vector_of(builder, std::vector<uint8_t>(size_bytes));
  return finish(builder, table(builder, {part(position, value)}));
}

TEST(MessagesDecode, HelloLimits) {
  for (const unsigned position : {2u, 3u}) {
    EXPECT_EQ(error_of(decode_hello(with_text(position, 256))), "");
    EXPECT_NE(error_of(decode_hello(with_text(position, 257))), "") << position;
  }
  EXPECT_EQ(error_of(decode_hello(with_bytes(4, 64))), "");
  EXPECT_EQ(error_of(decode_hello(with_bytes(4, 65))),
            "hello: token proof: 65 bytes are over the limit of 64");
  for (const size_t size_bytes : {0u, 16u}) {
    EXPECT_EQ(error_of(decode_hello(with_bytes(5, size_bytes))), "");
  }
  for (const size_t size_bytes : {1u, 15u, 17u}) {
    EXPECT_EQ(error_of(decode_hello(with_bytes(5, size_bytes))),
              "hello: session to resume: not 16 bytes");
  }
}

// A refusal (so that it needs no session id) with one more field.
std::vector<std::byte> refusal_with(unsigned position, size_t size_bytes) {
  Builder builder;
  const Part value = text(builder, std::string(size_bytes, 'x'));
  return finish(builder, table(builder, {scalar<uint8_t>(0, 1), part(position, value)}));
}

TEST(MessagesDecode, HelloReplyLimits) {
  EXPECT_EQ(error_of(decode_hello_reply(refusal_with(1, 65536))), "");
  EXPECT_NE(error_of(decode_hello_reply(refusal_with(1, 65537))), "");
  for (const unsigned position : {4u, 5u, 8u}) {
    EXPECT_EQ(error_of(decode_hello_reply(refusal_with(position, 256))), "");
    EXPECT_NE(error_of(decode_hello_reply(refusal_with(position, 257))), "") << position;
  }
  EXPECT_EQ(error_of(decode_hello_reply(refusal_with(6, 15))),
            "hello reply: session id: not 16 bytes");
  EXPECT_EQ(error_of(decode_hello_reply(with_bytes(6, 16))), "");
  EXPECT_EQ(error_of(decode_hello_reply(with_bytes(6, 0))), "hello reply: no session id");
  Builder builder;
  EXPECT_EQ(error_of(decode_hello_reply(finish(builder, table(builder, {scalar<uint8_t>(0, 8)})))),
            "hello reply: unknown code");
}

TEST(MessagesDecode, DeviceLimits) {
  const auto with_devices = [](size_t count, size_t name_size_bytes) {
    Builder builder;
    const Part name = text(builder, std::string(name_size_bytes, 'x'));
    const Part device = table(builder, {part(0, name)});
    const Part devices = vector_of(builder, std::vector<Part>(count, device));
    return finish(builder, table(builder, {scalar<uint8_t>(0, 1), part(9, devices)}));
  };
  EXPECT_EQ(error_of(decode_hello_reply(with_devices(128, 256))), "");
  EXPECT_EQ(error_of(decode_hello_reply(with_devices(129, 1))), "hello reply: over 128 devices");
  EXPECT_NE(error_of(decode_hello_reply(with_devices(1, 257))), "");
}

TEST(MessagesDecode, ReplyErrorLimits) {
  const auto with_error = [](uint8_t code, uint8_t type, unsigned position, size_t size_bytes) {
    Builder builder;
    const Part value = text(builder, std::string(size_bytes, 'x'));
    const Part error = table(builder, {scalar(0, code), scalar(1, type), part(position, value)});
    return decode_reply(finish(builder, table(builder, {part(1, error)})));
  };
  EXPECT_EQ(error_of(with_error(7, 6, 2, 65536)), "");
  EXPECT_NE(error_of(with_error(7, 6, 2, 65537)), "");
  EXPECT_EQ(error_of(with_error(7, 6, 3, 256)), "");
  EXPECT_NE(error_of(with_error(7, 6, 3, 257)), "");
  EXPECT_EQ(error_of(with_error(7, 6, 4, 65536)), "");
  EXPECT_NE(error_of(with_error(7, 6, 4, 65537)), "");
  EXPECT_EQ(error_of(with_error(0, 0, 2, 1)), "reply: an error with the code for none");
  EXPECT_EQ(error_of(with_error(8, 0, 2, 1)), "reply: error: unknown code");
  EXPECT_EQ(error_of(with_error(7, 7, 2, 1)), "reply: unknown type of error");
}

TEST(MessagesDecode, ReplyLimits) {
  const auto with_payload = [](uint64_t size_bytes) {
    Builder builder;
    return decode_reply(finish(builder, table(builder, {scalar(4, size_bytes)})));
  };
  EXPECT_EQ(error_of(with_payload(limits::kPayloadSizeBytesMax)), "");
  EXPECT_EQ(error_of(with_payload(limits::kPayloadSizeBytesMax + 1)),
            "reply: over 4294967296 payload bytes");
  const auto with_value = [](uint8_t kind, int64_t integer) {
    Builder builder;
    const Part value = table(builder, {scalar(0, kind), scalar(1, integer)});
    const Part values = vector_of(builder, std::vector<Part>{value});
    return decode_reply(finish(builder, table(builder, {part(3, values)})));
  };
  for (uint8_t kind = 0; kind < 20; ++kind) {
    const bool allowed = kind >= 7 && kind <= 10;  // kComplex needs its two parts.
    EXPECT_EQ(error_of(with_value(kind, 1)).empty(), allowed) << int{kind};
  }
  EXPECT_NE(error_of(with_value(7, 2)), "");
  const auto with_dtype = [](int8_t dtype) {
    Builder builder;
    const Part metas = vector_of(builder, std::vector<Part>{table(builder, {scalar(0, dtype)})});
    return decode_reply(finish(builder, table(builder, {part(2, metas)})));
  };
  EXPECT_EQ(error_of(with_dtype(1)), "");
  EXPECT_EQ(error_of(with_dtype(-1)), "reply: a tensor's dtype is negative");
  const auto with_result = [](uint8_t kind) {
    Builder builder;
    const Part result = table(builder, {scalar(0, kind)});
    const Part results = vector_of(builder, std::vector<Part>{result});
    return decode_reply(finish(builder, table(builder, {part(7, results)})));
  };
  for (uint8_t kind = 0; kind < 20; ++kind) {
    const std::string error = error_of(with_result(kind));
    const bool is_tensor = kind <= 1 || kind == 18;
    EXPECT_EQ(error == "reply: a result is no tensor", !is_tensor) << int{kind};
    EXPECT_EQ(error.empty(), kind <= 1) << int{kind};  // A sparse one tells its layout.
  }
}

TEST(MessagesDecode, GoodbyeLimits) {
  EXPECT_EQ(error_of(decode_goodbye(with_text(1, 65536))), "");
  EXPECT_EQ(error_of(decode_goodbye(with_text(1, 65537))),
            "goodbye: message: 65537 bytes are over the limit of 65536");
  Builder builder;
  EXPECT_EQ(error_of(decode_goodbye(finish(builder, table(builder, {scalar<uint8_t>(0, 8)})))),
            "goodbye: unknown code");
}

TEST(MessagesDecode, SharedPartsDoNotUnfold) {
  Builder builder;
  const Part sizes = vector_of(builder, std::vector<int64_t>(64, 1));
  const Part meta = table(builder, {part(2, sizes), part(3, sizes)});
  const Part metas = vector_of(builder, std::vector<Part>(1000, meta));
  EXPECT_EQ(error_of(decode_reply(finish(builder, table(builder, {part(2, metas)})))),
            "reply: it unfolds into more than was sent");
}

TEST(MessagesDecode, VerifierTablesHaveALimit) {
  const auto with_values = [](size_t count) {
    Builder builder;
    const Part value = table(builder, {scalar<uint8_t>(0, 8)});
    const Part values = vector_of(builder, std::vector<Part>(count, value));
    return decode_reply(finish(builder, table(builder, {part(3, values)})));
  };
  // The root is a table too. What verifies is refused a step later, since the values are shared.
  EXPECT_EQ(error_of(with_values(limits::kVerifierTablesMax - 1)),
            "reply: it unfolds into more than was sent");
  EXPECT_EQ(error_of(with_values(limits::kVerifierTablesMax)), "reply: the body does not verify");
}

TEST(MessagesDecode, DamagedBodiesNeverCrash) {
  const auto read_all = [](std::span<const std::byte> body) {
    (void)decode_hello(body);
    (void)decode_hello_reply(body);
    (void)decode_reply(body);
    (void)decode_goodbye(body);
  };
  for_every_damage(encode(full_hello()), read_all);
  for_every_damage(encode(full_hello_reply()), read_all);
  for_every_damage(encode(full_reply()), read_all);
  for_every_damage(encode(failed_reply()), read_all);
  for_every_damage(encode(Goodbye{Code::kOk, "done"}), read_all);
}

}  // namespace
}  // namespace rgpu::wire
