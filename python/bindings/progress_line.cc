#include "python/bindings/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace rgpu::backend {
namespace {

constexpr std::chrono::seconds kQuietFor{1};
constexpr uint64_t kWorthTellingBytes = 1'000'000;
constexpr double kMega = 1e6;

std::atomic<bool> line_taken = false;

bool is_wanted() {
  static const bool wanted = [] {
    const char* setting = std::getenv("RGPU_PROGRESS");
    return setting == nullptr || std::string_view(setting) != "0";
  }();
  return wanted && isatty(STDERR_FILENO) == 1;
}

void write_line(std::string_view text) noexcept {
  // Back to the line's beginning; what is left of the line before is erased.
  std::array<char, 160> line;
  const int size = std::snprintf(line.data(), line.size(), "\r%.*s\x1b[K",
                                 static_cast<int>(text.size()), text.data());
  const size_t written = std::min(static_cast<size_t>(size), line.size() - 1);
  if (write(STDERR_FILENO, line.data(), written) < 0) return;  // Only a line for somebody to see.
}

std::string one_way(const char* direction, uint64_t done_before, uint64_t done, uint64_t all,
                    double elapsed_s) {
  if (all <= done || all - done_before < kWorthTellingBytes) return {};
  const double rate = static_cast<double>(done - done_before) / elapsed_s;
  std::array<char, 128> text;
  int size = std::snprintf(text.data(), text.size(), "rgpu: %s %.1f of %.1f MB, %.1f MB/s",
                           direction, static_cast<double>(done - done_before) / kMega,
                           static_cast<double>(all - done_before) / kMega, rate / kMega);
  if (rate > 0) {
    const size_t at = static_cast<size_t>(size);
    size += std::snprintf(text.data() + at, text.size() - at, ", %.0f s left",
                          std::ceil(static_cast<double>(all - done) / rate));
  }
  return {text.data(), std::min(static_cast<size_t>(size), text.size() - 1)};
}

}  // namespace

std::string progress_text(const SessionStats& begin, const SessionStats& now,
                          std::chrono::duration<double> elapsed) {
  const double seconds = std::max(elapsed.count(), 1e-3);
  // What is asked for comes after what goes up.
  std::string text = one_way("up", begin.payload_bytes_out, now.payload_bytes_out,
                             now.payload_bytes_staged, seconds);
  if (!text.empty()) return text;
  return one_way("down", begin.payload_bytes_in, now.payload_bytes_in, now.payload_bytes_requested,
                 seconds);
}

void ProgressLine::begin(const SessionStats& now) {
  began_ = Clock::now();
  at_begin_ = now;
}

void ProgressLine::update(const SessionStats& now) {
  const Clock::duration elapsed = Clock::now() - began_;
  if (elapsed < kQuietFor || !is_wanted()) return;
  const std::string text = progress_text(at_begin_, now, elapsed);
  if (text.empty()) return;
  if (!shown_ && line_taken.exchange(true)) return;
  shown_ = true;
  write_line(text);
}

void ProgressLine::clear() noexcept {
  if (!shown_) return;
  shown_ = false;
  write_line({});
  line_taken = false;
}

}  // namespace rgpu::backend
