#include "server/torch/remote_error.h"

#include <c10/util/Exception.h>

#include <new>

#include "wire/limits.h"

namespace rgpu::server {
namespace {

using wire::ErrorType;

ErrorType type_of(const c10::Error& error) {
  if (dynamic_cast<const c10::IndexError*>(&error) != nullptr) return ErrorType::kIndexError;
  if (dynamic_cast<const c10::ValueError*>(&error) != nullptr) return ErrorType::kValueError;
  if (dynamic_cast<const c10::TypeError*>(&error) != nullptr) return ErrorType::kTypeError;
  if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) {
    return ErrorType::kNotImplementedError;
  }
  if (dynamic_cast<const c10::LinAlgError*>(&error) != nullptr) return ErrorType::kLinAlgError;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return ErrorType::kOutOfMemoryError;
  }
  return ErrorType::kRuntimeError;
}

wire::RemoteError translated(const std::exception_ptr& exception) {
  wire::RemoteError error;
  try {
    std::rethrow_exception(exception);
  } catch (const c10::Error& failure) {
    error.type = type_of(failure);
    error.message = failure.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    error.type = ErrorType::kOutOfMemoryError;
    error.message = "the server is out of memory";
  } catch (const std::exception& failure) {
    error.message = failure.what();
  } catch (...) {
    error.message = "an exception that is no std::exception";
  }
  return error;
}

void append(std::string& text, const ArgPlan& arg) {
  if (arg.source == ArgPlan::Source::kTensor || arg.source == ArgPlan::Source::kHostScalar) {
    if (!text.empty()) text += ", ";
    text += arg.use.geometry->to_string();
  }
  for (const ArgPlan& item : arg.items) append(text, item);
}

}  // namespace

wire::RemoteError to_remote_error(const std::exception_ptr& exception, MemoryLedger& ledger) {
  wire::RemoteError error = translated(exception);
  if (error.type == ErrorType::kOutOfMemoryError) {
    ledger.note_out_of_memory();
    error.message += " (" + ledger.in_use_text() + ")";
  }
  return error;
}

wire::RemoteError lost_error(const Poison& poison) {
  wire::RemoteError error = poison.error;
  error.message +=
      "\n  rgpu: this is the error of an earlier op, whose result was dropped unread; what was "
      "asked "
      "for here is fine: ask again";
  return error;
}

std::string arguments_text(const OpPlan& plan) {
  constexpr size_t kSizeBytesMax = 4096;
  std::string text;
  for (const ArgPlan& arg : plan.args) {
    append(text, arg);
    if (text.size() < kSizeBytesMax) continue;
    text.resize(kSizeBytesMax);
    return text + "…";
  }
  return text;
}

}  // namespace rgpu::server
