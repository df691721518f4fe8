// Writes the hand-made inputs of the fuzz targets into <folder>/<target>/seed_<name>. Run it again
// when the schema has grown, then fuzz and merge what that finds (README.md).
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/recorder.h"
#include "wire/batch.h"
#include "wire/frame.h"
#include "wire/graph.h"
#include "wire/messages.h"

namespace rgpu::wire {
namespace {

class Corpus {
 public:
  explicit Corpus(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void write(const std::string& target, const std::string& name,
             std::span<const std::byte> bytes) const {
    std::filesystem::create_directories(folder_ / target);
    std::ofstream file(folder_ / target / ("seed_" + name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  void write(const std::string& target, const std::string& name, std::string_view text) const {
    write(target, name, std::as_bytes(std::span(text)));
  }
  // Behind the byte that tells messages_fuzz which decoder to use.
  void write_message(const std::string& name, uint8_t kind, std::vector<std::byte> body) const {
    body.insert(body.begin(), static_cast<std::byte>(kind));
    write("messages", name, body);
  }

 private:
  std::filesystem::path folder_;
};

Arg arg_of(ArgKind kind, std::vector<Arg> items = {}) {
  Arg arg;
  arg.kind = kind;
  arg.items = std::move(items);
  if (kind == ArgKind::kTensor) {
    arg.tensor = {6, TensorMeta::kHasOffset | TensorMeta::kRequiresGrad, {2, 3}, {3, 1}};
  }
  if (kind == ArgKind::kComplex || kind == ArgKind::kDoubleList) arg.reals = {0.5, -0.5};
  if (kind == ArgKind::kIntList || kind == ArgKind::kBoolList) arg.integers = {1, 0};
  if (kind == ArgKind::kString) arg.text = "none";
  if (kind == ArgKind::kDouble) arg.real = 1e-5;
  if (kind == ArgKind::kInt || kind == ArgKind::kBool) arg.integer = 1;
  if (kind == ArgKind::kSparse) {
    arg.tensor = {6, 0, {4, 3}, {0, 0}};
    arg.integers = {1, 1};
    arg.items = {arg_of(ArgKind::kTensor), arg_of(ArgKind::kTensor)};
  }
  return arg;
}

OpTemplate add_tensor() {
  OpTemplate op;
  op.name = "aten::add";
  op.overload = "Tensor";
  op.schema_hash = 0x1234;
  op.args = {arg_of(ArgKind::kTensor), arg_of(ArgKind::kTensor), arg_of(ArgKind::kScalarInt)};
  op.outputs = {{OutputKind::kNew, {6, 0, {2, 3}, {3, 1}}}};
  return op;
}

OpTemplate every_kind() {
  OpTemplate op;
  op.name = "aten::every_kind";
  for (uint8_t kind = 0; kind <= static_cast<uint8_t>(ArgKind::kSparse); ++kind) {
    op.args.push_back(arg_of(static_cast<ArgKind>(kind)));
  }
  op.args.push_back(arg_of(ArgKind::kTensorList,
                           {arg_of(ArgKind::kTensor), arg_of(ArgKind::kSparse), arg_of({})}));
  op.args.push_back(arg_of(ArgKind::kScalarList, {arg_of(ArgKind::kScalarDouble)}));
  for (uint8_t kind = 0; kind <= static_cast<uint8_t>(OutputKind::kAnyLayout); ++kind) {
    op.outputs.push_back({static_cast<OutputKind>(kind), {}});
  }
  op.outputs.push_back({OutputKind::kOpaque, {}});
  op.random = op.replies = op.keeps_graph = true;
  return op;
}

GraphArg graph_value(uint32_t number) { return {GraphArg::Kind::kValue, number, {}, {}}; }

GraphArg graph_constant(ArgKind kind) { return {GraphArg::Kind::kConstant, 0, arg_of(kind), {}}; }

void write_graphs(const Corpus& corpus) {
  corpus.write("graph", "empty", encode_graph({}));
  Graph graph;
  graph.inputs = {GraphInput::kTensor, GraphInput::kInteger};
  graph.nodes.push_back({"aten::relu", "", 0x1234, {graph_value(0)}, 1, "a.py:1 in f"});
  GraphArg sizes{GraphArg::Kind::kList, 0, {}, {}};
  sizes.items = {graph_value(1), graph_constant(ArgKind::kInt)};
  graph.nodes.push_back({"aten::view", "", 0, {graph_value(2), sizes}, 1, ""});
  GraphNode every{"aten::every_kind", "", 0, {}, 3, ""};
  for (const ArgKind kind : {ArgKind::kNone, ArgKind::kBool, ArgKind::kInt, ArgKind::kDouble,
                             ArgKind::kString, ArgKind::kDevice, ArgKind::kIntList,
                             ArgKind::kDoubleList, ArgKind::kBoolList, ArgKind::kComplex}) {
    every.args.push_back(graph_constant(kind));
  }
  graph.nodes.push_back(std::move(every));
  graph.outputs = {{false, 3}, {true, 0}, {false, 6}};
  corpus.write("graph", "every_kind", encode_graph(graph));
}

void write_frames(const Corpus& corpus) {
  Preamble preamble;
  corpus.write("preamble", "new_session", to_bytes(preamble));
  preamble.protocol_version = 2;
  corpus.write("preamble", "other_version", to_bytes(preamble));
  corpus.write("preamble", "http", "GET / HTTP/1.1\r\nHost: example\r\n");

  for (uint16_t kind = 1; kind <= 6; ++kind) {
    FrameHeader header;
    header.kind = kind;
    header.body_size_bytes = kind == 4 ? 0 : 100;
    header.sequence = 7;
    corpus.write("frame", "kind_" + std::to_string(kind), to_bytes(header));
  }
  FrameHeader payload;
  payload.kind = static_cast<uint16_t>(FrameKind::kBatch);
  payload.body_size_bytes = 1000;
  payload.stream = 3;
  payload.segment_count = 2;
  payload.payload_size_bytes = 4096;
  corpus.write("frame", "payload", to_bytes(payload));
  corpus.write("frame", "http", "HTTP/1.1 400 Bad Request\r\n\r\n");
}

void write_batches(const Corpus& corpus) {
  BatchEncoder encoder;
  corpus.write("batch", "empty", encoder.finish());

  // One of every command; records are shaped as batch_fuzz.cc's shape_of() says.
  for (uint32_t number = 0; number <= static_cast<uint32_t>(Command::kSwitches); ++number) {
    if (number == static_cast<uint32_t>(Command::kForgetTemplates)) continue;
    const RecordShape shape = *command_shape(number);
    encoder.add_record(number, 0, std::vector<Handle>(shape.handle_count, 300 + number),
                       std::vector<std::byte>(shape.immediates_size_bytes));
  }
  encoder.add_record(static_cast<uint32_t>(Command::kForgetTemplates), 0, {}, {});
  encoder.add_segment(64);
  corpus.write("batch", "commands", encoder.finish());

  encoder.clear();
  encoder.add_template(encode_op_template(add_tensor()));
  encoder.add_record(20, 5, {}, std::vector<std::byte>(24));
  encoder.add_record(16, 3, std::vector<Handle>{1}, std::vector<std::byte>(8));
  encoder.add_record(17, 400, std::vector<Handle>{1000, 2}, std::vector<std::byte>(12));
  encoder.add_record(8016, UINT32_MAX, std::vector<Handle>{(Handle{1} << 48) - 1},
                     std::vector<std::byte>(4));
  corpus.write("batch", "templates", encoder.finish());
}

void write_op_templates(const Corpus& corpus) {
  OpTemplate bare;
  bare.name = "aten::bare";
  corpus.write("op_template", "bare", encode_op_template(bare));
  corpus.write("op_template", "add", encode_op_template(add_tensor()));
  corpus.write("op_template", "every_kind", encode_op_template(every_kind()));
}

void write_messages(const Corpus& corpus) {
  Hello hello;
  hello.protocol_version = kProtocolVersion;
  hello.client_version = "0.1.0";
  hello.torch_version = "2.13.0+cpu";
  corpus.write_message("hello", 0, encode(hello));
  hello.token_proof.resize(32);
  hello.resume_session.resize(16);
  corpus.write_message("hello_resume", 0, encode(hello));

  HelloReply hello_reply;
  hello_reply.session_id.resize(16);
  hello_reply.device_type = "cpu";
  hello_reply.devices = {{"cpu", 1 << 30}};
  corpus.write_message("hello_reply", 1, encode(hello_reply));
  HelloReply refusal;
  refusal.code = Code::kExhausted;
  refusal.message = "too many sessions";
  corpus.write_message("refusal", 1, encode(refusal));

  Reply reply;
  reply.request = 1;
  reply.metas = {{6, 0, {2, 3}, {3, 1}}};
  reply.values = {arg_of(ArgKind::kBool), arg_of(ArgKind::kInt), arg_of(ArgKind::kDouble),
                  arg_of(ArgKind::kComplex)};
  reply.payload_size_bytes = 24;
  corpus.write_message("reply", 2, encode(reply));
  reply.results = {arg_of(ArgKind::kNone), arg_of(ArgKind::kTensor), arg_of(ArgKind::kSparse)};
  corpus.write_message("reply_results", 2, encode(reply));
  Reply failed;
  failed.failed = true;
  failed.error.message = "index out of range";
  failed.error.op = "aten::embedding";
  failed.error.arguments = "float32[3, 3], int64[1]";
  corpus.write_message("reply_failed", 2, encode(failed));

  corpus.write_message("goodbye", 3, encode(Goodbye{Code::kInternal, "the worker crashed"}));
}

// One of every event, without the hash at the end.
void write_recordings(const Corpus& corpus, bool keeps_bytes) {
  const std::string path = std::filesystem::temp_directory_path() / "seed.rgpurec";
  SessionOptions options;
  options.client_version = "0.1.0";
  options.torch_version = "2.13.0+cpu";
  options.record_path = path;
  options.record_bytes = keeps_bytes;
  const std::unique_ptr<Recorder> recorder = Recorder::open(options);
  const Recorder::Clock::time_point began{};  // No gaps, so that the files are always the same.
  OpTemplate asking = add_tensor();
  asking.replies = true;
  const auto number = recorder->define_template(began, encode_op_template(asking),
                                                [] { return Result<uint32_t>(kFirstTemplate); });
  recorder->greeting(began);
  recorder->upload(began, 0, 1, 64, 8, std::vector<std::byte>(16));
  recorder->request(began, 1024, 16);
  recorder->abandon(began, 1024);
  for (uint64_t request = 2048; request < 2050; ++request) recorder->request(began, request, 0);
  const uint64_t immediates[] = {0, 0, 7, 2048};
  const Handle handles[] = {1, 1, 2};
  recorder->record(began, 3, {*number, 9, handles, std::as_bytes(std::span(immediates))});
  recorder->wait(began, 2048, Reply());
  const uint64_t second = 2049;
  recorder->record(
      began, 0,
      {static_cast<uint32_t>(Command::kSync), 0, {}, std::as_bytes(std::span(&second, 1))});
  recorder->wait(began, second, Status(Code::kCancelled, "interrupted"));
  recorder->request(began, 4096, 0);
  const uint64_t polled = 4096;
  recorder->record(
      began, 3,
      {static_cast<uint32_t>(Command::kSyncStream), 0, {}, std::as_bytes(std::span(&polled, 1))});
  recorder->flush(began);
  recorder->poll(began, polled, Result<Reply>(Reply()));
  recorder->free(began, 2);
  recorder->record(began, 0, {static_cast<uint32_t>(Command::kForgetTemplates), 0, {}, {}});
  recorder->finish();
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  bytes.resize(bytes.size() - sizeof(uint64_t));
  corpus.write("recording", keeps_bytes ? "with_bytes" : "without_bytes", bytes);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rgpu::wire

int main(int argument_count, char** arguments) {
  if (argument_count != 2) {
    std::fprintf(stderr, "usage: seed_corpus FOLDER\n");
    return 2;
  }
  const rgpu::wire::Corpus corpus(arguments[1]);
  rgpu::wire::write_frames(corpus);
  rgpu::wire::write_batches(corpus);
  rgpu::wire::write_graphs(corpus);
  rgpu::wire::write_op_templates(corpus);
  rgpu::wire::write_messages(corpus);
  rgpu::wire::write_recordings(corpus, false);
  rgpu::wire::write_recordings(corpus, true);
  return 0;
}
