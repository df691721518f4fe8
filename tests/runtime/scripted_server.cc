#include "tests/runtime/scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace rgpu::testing {
namespace {

using wire::FrameHeader;
using wire::FrameKind;

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("scripted server: ") + what);
}

template <typename T>
T require_value(Result<T> result) {
  if (!result) throw std::runtime_error("scripted server: " + result.error().to_string());
  return *std::move(result);
}

int listen_on_loopback(uint16_t& port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  require(::bind(listener, generic, sizeof(address)) == 0, "bind");
  require(::listen(listener, 8) == 0, "listen");
  socklen_t size = sizeof(address);
  require(::getsockname(listener, generic, &size) == 0, "getsockname");
  port = ntohs(address.sin_port);
  return listener;
}

}  // namespace

ReceivedBatch decode_batch(std::span<const std::byte> body,
                           std::vector<wire::OpTemplate>& templates) {
  ReceivedBatch batch;
  wire::BatchReader reader = require_value(wire::BatchReader::open(body));
  for (uint32_t index = 0; index < reader.template_count(); ++index) {
    batch.templates.push_back(
        require_value(wire::decode_op_template(reader.template_bytes(index))));
    templates.push_back(batch.templates.back());
  }
  for (uint32_t index = 0; index < reader.record_count(); ++index) {
    const auto [number, location] = require_value(reader.next());
    wire::RecordShape shape;
    if (number < wire::kFirstTemplate) {
      shape = require_value(wire::command_shape(number));
    } else {
      const wire::OpTemplate& op = templates.at(number - wire::kFirstTemplate);
      shape = {op.handle_count(), op.immediates_size_bytes()};
    }
    ReceivedRecord record{number, location, std::vector<wire::Handle>(shape.handle_count), {}};
    require(reader.read_handles(record.handles).ok(), "handles");
    const auto immediates = require_value(reader.read_immediates(shape.immediates_size_bytes));
    record.immediates.assign(immediates.begin(), immediates.end());
    if (record.is(wire::Command::kForgetTemplates)) templates.clear();
    batch.records.push_back(std::move(record));
  }
  require(reader.finish().ok(), "a column has bytes left over");
  batch.segment_sizes.assign(reader.segments().begin(), reader.segments().end());
  return batch;
}

uint64_t ReceivedRecord::word(size_t index) const {
  uint64_t value = 0;
  require(immediates.size() >= (index + 1) * sizeof(value), "a record's immediates are short");
  std::memcpy(&value, immediates.data() + index * sizeof(value), sizeof(value));
  return value;
}

ScriptedServer::ScriptedServer() {
  listener_ = listen_on_loopback(port_);
  const timeval deadline{10, 0};
  ::setsockopt(listener_, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
}

ScriptedServer::~ScriptedServer() {
  close();
  ::close(listener_);
}

uint16_t ScriptedServer::closed_port() {
  uint16_t port = 0;
  ::close(listen_on_loopback(port));
  return port;
}

void ScriptedServer::accept() {
  socket_ = ::accept(listener_, nullptr, nullptr);
  require(socket_ >= 0, "nobody connected");
  batches_ = 0;
  templates_.clear();
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const timeval deadline{10, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
}

wire::Hello ScriptedServer::read_hello() {
  const std::vector<std::byte> preamble = read_bytes(sizeof(wire::Preamble));
  require_value(wire::parse_preamble(
      std::span<const std::byte, sizeof(wire::Preamble)>(preamble.data(), sizeof(wire::Preamble))));
  const FrameHeader header = read_header();
  require(header.kind == static_cast<uint16_t>(FrameKind::kHello), "expected a Hello");
  return require_value(wire::decode_hello(read_bytes(header.body_size_bytes)));
}

void ScriptedServer::greet() {
  accept();
  (void)read_hello();
  wire::HelloReply reply;
  reply.protocol_version = wire::kProtocolVersion;
  reply.server_version = "scripted";
  reply.session_id.resize(16);
  reply.device_type = "cpu";
  reply.devices.push_back({"cpu", 1 << 30});
  hello_reply(reply);
}

FrameHeader ScriptedServer::read_header() {
  const std::vector<std::byte> bytes = read_bytes(sizeof(FrameHeader));
  return require_value(wire::parse_frame_header(
      std::span<const std::byte, sizeof(FrameHeader)>(bytes.data(), sizeof(FrameHeader))));
}

ReceivedBatch ScriptedServer::read_batch_body() {
  const FrameHeader header = read_header();
  require(header.kind == static_cast<uint16_t>(FrameKind::kBatch), "expected a batch");
  require(header.sequence == ++batches_, "a batch is missing");
  ReceivedBatch batch = decode_batch(read_bytes(header.body_size_bytes), templates_);
  batch.header = header;
  require(header.segment_count == batch.segment_sizes.size(),
          "the header's segment count is wrong");
  return batch;
}

ReceivedBatch ScriptedServer::read_batch() {
  ReceivedBatch batch = read_batch_body();
  for (const uint64_t size : batch.segment_sizes) batch.segments.push_back(read_bytes(size));
  return batch;
}

ReceivedBatch ScriptedServer::read_batch_into(std::span<std::byte> scratch) {
  ReceivedBatch batch = read_batch_body();
  read_into(scratch.first(batch.header.payload_size_bytes));
  return batch;
}

std::vector<ReceivedRecord> ScriptedServer::read_records(size_t count) {
  std::vector<ReceivedRecord> records;
  while (count != 0) {
    for (ReceivedRecord& record : read_batch().records) {
      const bool counts = !record.is(wire::Command::kFree) && !record.is(wire::Command::kStream);
      require(!counts || count-- != 0, "more records than expected");
      records.push_back(std::move(record));
    }
  }
  return records;
}

ReceivedRecord ScriptedServer::read_until(wire::Command command) {
  while (true) {
    for (ReceivedRecord& record : read_batch().records) {
      if (record.is(command)) return std::move(record);
    }
  }
}

void ScriptedServer::discard() {
  greet();
  while (true) {
    const wire::FrameHeader header = read_header();
    (void)read_bytes(header.body_size_bytes + header.payload_size_bytes);
    if (header.kind != static_cast<uint16_t>(wire::FrameKind::kBatch)) break;
    ack(header.sequence);
  }
  close();
}

bool ScriptedServer::quiet() const {
  pollfd readable{socket_, POLLIN, 0};
  return ::poll(&readable, 1, 0) == 0;
}

std::vector<std::byte> ScriptedServer::read_bytes(size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  read_into(bytes);
  return bytes;
}

void ScriptedServer::read_into(std::span<std::byte> target) {
  while (!target.empty()) {
    const ssize_t size = ::recv(socket_, target.data(), target.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    require(size != 0, "the client closed the connection");
    require(size > 0, "nothing came within ten seconds");
    target = target.subspan(static_cast<size_t>(size));
  }
}

void ScriptedServer::read_to_end() {
  std::vector<std::byte> bytes(64 << 10);
  ssize_t size = 0;
  do {
    size = ::recv(socket_, bytes.data(), bytes.size(), 0);
  } while (size > 0 || (size < 0 && errno == EINTR));
  require(size == 0 || errno == ECONNRESET, "the client did not close the connection");
}

void ScriptedServer::hello_reply(const wire::HelloReply& reply) {
  send_frame(FrameKind::kHelloReply, wire::encode(reply));
}

void ScriptedServer::ack(uint64_t sequence) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(FrameKind::kAck);
  header.sequence = sequence;
  send(wire::to_bytes(header));
}

void ScriptedServer::reply(const wire::Reply& reply, std::span<const std::byte> payload) {
  send_frame(FrameKind::kReply, wire::encode(reply), payload);
}

void ScriptedServer::goodbye(Code code, const std::string& message) {
  send_frame(FrameKind::kGoodbye, wire::encode(wire::Goodbye{code, message}));
}

void ScriptedServer::send_frame(FrameKind kind, std::span<const std::byte> body,
                                std::span<const std::byte> payload) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  header.segment_count = payload.empty() ? 0 : 1;
  header.payload_size_bytes = payload.size();
  header.sequence = kind == FrameKind::kHelloReply ? 0 : batches_;
  send(wire::to_bytes(header));
  send(body);
  send(payload);
}

void ScriptedServer::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    require(size > 0, "send");
    bytes = bytes.subspan(static_cast<size_t>(size));
  }
}

void ScriptedServer::send(const std::string& text) {
  send(std::as_bytes(std::span(text.data(), text.size())));
}

void ScriptedServer::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void ScriptedServer::reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close();
}

std::vector<std::byte> make_template(const std::string& name, uint32_t handles, uint32_t scalars) {
  wire::OpTemplate op;
  op.name = name;
  wire::Arg tensor;
  tensor.kind = wire::ArgKind::kTensor;
  op.args.assign(handles, tensor);
  wire::Arg scalar;
  scalar.kind = wire::ArgKind::kScalarInt;
  op.args.insert(op.args.end(), scalars, scalar);
  return wire::encode_op_template(op);
}

}  // namespace rgpu::testing
