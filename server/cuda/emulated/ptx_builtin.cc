#include "server/cuda/emulated/ptx_builtin.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <string>

#include "server/cuda/emulated/ptx_run.h"

namespace rgpu::server::ptx {
namespace {

constexpr size_t kStringSizeMax = 1 << 16;
constexpr uint32_t kSite = kIntervalCount - 1;

// Ends at the string's zero, or behind a fault.
std::string read_string(Context& context, uint64_t address, uint32_t lane) {
  std::string text;
  if (address == 0) return "(null)";
  while (text.size() < kStringSizeMax) {
    const std::byte* at =
        resolve_address(context, Space::kGeneric, address + text.size(), 1, 1, lane, kSite);
    if (at == nullptr || *at == std::byte{0}) break;
    text.push_back(static_cast<char>(*at));
  }
  return text;
}

// The arguments of one printf, one behind the other, each at a multiple of its size.
class ArgumentReader {
 public:
  ArgumentReader(Context& context, uint64_t address, uint32_t lane)
      : context_(context), at_(address), lane_(lane) {}

  uint64_t next(uint32_t size) {
    at_ = (at_ + size - 1) / size * size;
    const std::byte* from =
        resolve_address(context_, Space::kGeneric, at_, size, size, lane_, kSite);
    uint64_t value = 0;
    if (from != nullptr) std::memcpy(&value, from, size);
    at_ += size;
    ++count_;
    return value;
  }
  [[nodiscard]] uint32_t count() const { return count_; }

 private:
  Context& context_;
  uint64_t at_;
  uint32_t lane_;
  uint32_t count_ = 0;
};

struct Conversion {
  std::string flags;
  int width = -1;
  int precision = -1;
  bool is_long = false;
  char letter = 0;
  size_t end = 0;  // Behind it in the format.
};

template <typename T>
void append(std::string& text, const Conversion& conversion, const char* length, T value) {
  // Width and precision are bounded, so that one number is.
  char format[64];
  const int width = std::min(conversion.width, 4096);
  const int precision = std::min(conversion.precision, 4096);
  const char* const flags = conversion.flags.c_str();
  int size = 0;
  char number[9000];
  if (precision >= 0) {
    std::snprintf(format, sizeof(format), "%%%.8s*.*%s%c", flags, length, conversion.letter);
    size = std::snprintf(number, sizeof(number), format, std::max(width, 0), precision, value);
  } else {
    std::snprintf(format, sizeof(format), "%%%.8s*%s%c", flags, length, conversion.letter);
    size = std::snprintf(number, sizeof(number), format, std::max(width, 0), value);
  }
  text.append(number, std::min(static_cast<size_t>(std::max(size, 0)), sizeof(number) - 1));
}

int read_number(const std::string& format, size_t& at, ArgumentReader& arguments) {
  if (at < format.size() && format[at] == '*') {
    ++at;
    return static_cast<int>(static_cast<int32_t>(arguments.next(4)));
  }
  int value = 0;
  while (at < format.size() && format[at] >= '0' && format[at] <= '9') {
    value = std::min(value * 10 + (format[at++] - '0'), 100'000);
  }
  return value;
}

Conversion read_conversion(const std::string& format, size_t at, ArgumentReader& arguments) {
  Conversion result;
  while (at < format.size() && std::strchr("-+ #0", format[at]) != nullptr) {
    if (result.flags.size() < 8) result.flags.push_back(format[at]);
    ++at;
  }
  if (at < format.size() && (format[at] == '*' || (format[at] >= '0' && format[at] <= '9'))) {
    result.width = read_number(format, at, arguments);
    if (result.width < 0) {
      result.width = -result.width;
      result.flags.push_back('-');
    }
  }
  if (at < format.size() && format[at] == '.') {
    ++at;
    result.precision = std::max(read_number(format, at, arguments), 0);
  }
  while (at < format.size() && std::strchr("hljztL", format[at]) != nullptr) {
    result.is_long = result.is_long || format[at] == 'l' || format[at] == 'j' ||
                     format[at] == 'z' || format[at] == 't';
    ++at;
  }
  if (at < format.size()) result.letter = format[at++];
  result.end = at;
  return result;
}

void convert(std::string& text, const Conversion& conversion, Context& context,
             ArgumentReader& arguments, uint32_t lane) {
  switch (conversion.letter) {
    case 'd':
    case 'i':
      if (conversion.is_long)
        return append(text, conversion, "ll", static_cast<long long>(arguments.next(8)));
      return append(text, conversion, "", static_cast<int32_t>(arguments.next(4)));
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      if (conversion.is_long)
        return append(text, conversion, "ll", static_cast<unsigned long long>(arguments.next(8)));
      return append(text, conversion, "", static_cast<uint32_t>(arguments.next(4)));
    case 'c':
      return append(text, conversion, "", static_cast<int>(arguments.next(4) & 0xff));
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      return append(text, conversion, "", std::bit_cast<double>(arguments.next(8)));
    case 'p':
      return append(text, conversion, "", reinterpret_cast<void*>(arguments.next(8)));
    case 's': {
      const std::string value = read_string(context, arguments.next(8), lane);
      return append(text, conversion, "", value.c_str());
    }
    default:
      text.push_back(conversion.letter);
      return;  // %%, and what is no conversion.
  }
}

void print(Context& context, BuiltinCall& call) {
  std::string text;
  for (uint32_t m = context.mask; m != 0 && context.fault_code == 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const std::string format = read_string(context, call.argument(0, lane), lane);
    ArgumentReader arguments(context, call.argument(1, lane), lane);
    for (size_t at = 0; at < format.size() && context.fault_code == 0;) {
      if (format[at] != '%') {
        text.push_back(format[at++]);
        continue;
      }
      const Conversion conversion = read_conversion(format, at + 1, arguments);
      convert(text, conversion, context, arguments, lane);
      at = conversion.end;
    }
    call.set_result(lane, arguments.count());
  }
  context.grid->output->print(text);
}

void assertion_failed(Context& context, BuiltinCall& call) {
  std::string text;
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const std::string message = read_string(context, call.argument(0, lane), lane);
    const std::string file = read_string(context, call.argument(1, lane), lane);
    const std::string function = read_string(context, call.argument(3, lane), lane);
    const auto& block = context.block_index;
    const auto& thread = *context.thread_index;
    char place[160];
    std::snprintf(place, sizeof(place), "block: [%u,%u,%u], thread: [%u,%u,%u]", block[0], block[1],
                  block[2], thread[0][lane], thread[1][lane], thread[2][lane]);
    text += file + ":" + std::to_string(static_cast<uint32_t>(call.argument(2, lane))) + ": " +
            function + ": " + place + " Assertion `" + message + "` failed.\n";
  }
  context.grid->output->print_error(text);
  context.fail(FaultCode::kAssert, "assertion failed",
               static_cast<uint32_t>(std::countr_zero(context.mask)), 0);
}

void allocate(Context& context, BuiltinCall& call) {
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const uint64_t size = call.argument(0, lane);
    uint64_t address = 0;
    if (size != 0) {
      if (const Result<uint64_t> made = context.memory->allocate(size, 16)) address = *made;
    }
    call.set_result(lane, address);
  }
}

void release(Context& context, BuiltinCall& call) {
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const uint64_t address = call.argument(0, lane);
    if (address == 0) continue;
    if (!context.memory->free(address)) {
      context.fail(FaultCode::kLaunchFailed, "free() of what malloc() did not give", lane, address);
      return;
    }
    *context.intervals = {};
  }
}

}  // namespace

void run_builtin(Builtin builtin, Context& context, BuiltinCall& call) {
  switch (builtin) {
    case Builtin::kVprintf:
      return print(context, call);
    case Builtin::kAssertFail:
      return assertion_failed(context, call);
    case Builtin::kMalloc:
      return allocate(context, call);
    case Builtin::kFree:
      return release(context, call);
    case Builtin::kNone:
      return;
  }
}

}  // namespace rgpu::server::ptx
