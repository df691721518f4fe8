// OutputCapture: what kernels print. NVIDIA's driver writes it to this process's standard output,
// so that is redirected into a pipe; a worker process is one session, and writes nothing there
// itself.
//
// Threading: drain() and print() from any thread.
// Lifetime:  the destructor gives the standard output back.
// Errors:    where there is no pipe, text goes to the standard output as before.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

namespace rgpu::server::cuda {

class OutputCapture {
 public:
  explicit OutputCapture(std::function<void(std::string_view)> print);
  ~OutputCapture();
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  // When it returns, all that was written before was printed.
  void drain();

 private:
  void read_all();  // Under mutex_.
  void run();

  const std::function<void(std::string_view)> print_;
  std::mutex mutex_;       // From reading to having printed.
  int saved_output_ = -1;  // The standard output as it was.
  int pipe_ = -1;          // Its reading end.
  int wake_ = -1;          // Readable when it is time to end.
  std::thread thread_;     // Else a kernel's text of more than a pipe holds would stop the driver.
};

}  // namespace rgpu::server::cuda
