// CompilerProcess: the process that compiles graphs (python -m rgpu_compile), one job after the
// other, kept away from everything else:
//
// - lowest scheduling and I/O class, one thread, a process group of its own that ends with the
// worker;
// - a clean environment, no descriptors but its pipes, a private temporary folder as its home;
// - no new privileges, limits of file size and core files;
// - where the kernel allows it: no network (namespaces), and nothing writable outside its folder
//   (Landlock).
//
// Threading: one thread at a time, and always the same one: the process ends when that thread does.
// Errors:    kExhausted when it cannot be started, died, or did not answer in time (it is killed);
//            kCancelled.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

#include "wire/status.h"

namespace rgpu::server {

class CompilerProcess {
 public:
  // `folder`: private to the server's user; the process works in one of its own in it.
  CompilerProcess(std::string python, std::filesystem::path folder);
  ~CompilerProcess();
  CompilerProcess(const CompilerProcess&) = delete;
  CompilerProcess& operator=(const CompilerProcess&) = delete;

  // Sends one line, and returns the line that answers it, both without their ends. Starts the
  // process if there is none.
  [[nodiscard]] Result<std::string> ask(const std::string& line, std::chrono::seconds timeout,
                                        const std::atomic<bool>& cancelled);
  // Ends it; the next question starts another one.
  void stop() noexcept;
  [[nodiscard]] bool running() const noexcept { return pid_ > 0; }
  // Of the process, for what it makes. Exists while it runs.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return work_folder_; }

 private:
  [[nodiscard]] Status start();
  [[nodiscard]] std::string last_words() const;

  const std::string python_;
  const std::filesystem::path folder_;
  std::filesystem::path work_folder_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string received_;
};

}  // namespace rgpu::server
