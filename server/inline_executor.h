// InlineExecutor: runs each run where it is submitted.
#pragma once

#include <memory>

#include "server/executor.h"

namespace rgpu::server {

class InlineExecutor final : public Executor {
 public:
  void submit(std::unique_ptr<Run> run) override { run->execute(); }
  void drain() override {}
};

}  // namespace rgpu::server
