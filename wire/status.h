// Status, Result: how every part of rgpu says that something did not work.
//
// Threading: plain values; share them as any value.
// Errors:    this is the error type. Nothing here throws except Result::value() on an error,
//            which is a bug in the caller and ends the process.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rgpu {

// Codes follow what the caller can do next, not the cause.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,  // Fix the call.
  kUnimplemented = 2,    // Fall back to something else.
  kExhausted = 3,        // Back off, free something, retry.
  kDisconnected = 4,     // The session is gone: make a new one.
  kCancelled = 5,        // Stop.
  kDevice = 6,           // A remote op failed; its outputs are poisoned.
  kInternal = 7,         // A bug in rgpu.
};

[[nodiscard]] const char* code_name(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() = default;  // Ok.
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::kOk; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  // "context: message"; an ok status stays ok.
  [[nodiscard]] Status with_context(std::string_view context) const;
  // "kDisconnected: message", for logs.
  [[nodiscard]] std::string to_string() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

#define RGPU_CHECK(condition)                               \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::rgpu::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)

// Ends the process: our own invariant is broken. Never reached by bytes from the network.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

// A value or the Status that says why there is none. The members of std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Status error) : error_(std::move(error)) {  // NOLINT(google-explicit-constructor)
    RGPU_CHECK(!error_.ok());
  }

  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] T& value() & {
    RGPU_CHECK(value_.has_value());
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    RGPU_CHECK(value_.has_value());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    RGPU_CHECK(value_.has_value());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  [[nodiscard]] const Status& error() const noexcept { return error_; }

 private:
  std::optional<T> value_;
  Status error_;
};

}  // namespace rgpu

// Returns the Status of an expression from the enclosing function when it is not ok.
#define RGPU_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                    \
    if (::rgpu::Status rgpu_status = (expression); !rgpu_status.ok()) return rgpu_status; \
  } while (false)
