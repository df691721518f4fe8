#include "wire/status.h"

namespace rgpu {

const char* code_name(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "kOk";
    case Code::kInvalidArgument:
      return "kInvalidArgument";
    case Code::kUnimplemented:
      return "kUnimplemented";
    case Code::kExhausted:
      return "kExhausted";
    case Code::kDisconnected:
      return "kDisconnected";
    case Code::kCancelled:
      return "kCancelled";
    case Code::kDevice:
      return "kDevice";
    case Code::kInternal:
      return "kInternal";
  }
  return "an unknown code";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  std::string message;
  message.reserve(context.size() + 2 + message_.size());
  message.append(context).append(": ").append(message_);
  return Status(code_, std::move(message));
}

std::string Status::to_string() const {
  std::string text = code_name(code_);
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "rgpu: %s:%d: check failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace rgpu
