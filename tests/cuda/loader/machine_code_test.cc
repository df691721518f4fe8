#include "cuda_shim/loader/machine_code.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "cuda_shim/loader/resolver.h"

namespace rgpu::loader {
namespace {

constexpr size_t kCodeBytes = 1 << 16;
constexpr uint32_t kRoomBytes = 16;

// Memory for instructions; nothing is readable beside it.
class CodePage {
 public:
  explicit CodePage(void* wanted = nullptr) {
    memory_ = static_cast<std::byte*>(
        ::mmap(wanted, kCodeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(memory_, 0xcc, kCodeBytes);
  }
  ~CodePage() { ::munmap(memory_, kCodeBytes); }
  CodePage(const CodePage&) = delete;
  CodePage& operator=(const CodePage&) = delete;

  [[nodiscard]] std::byte* at(size_t offset) { return memory_ + offset; }
  void make_executable(size_t size_bytes) {
    flush_instructions(memory_, size_bytes);
    ASSERT_EQ(::mprotect(memory_, size_bytes, PROT_READ | PROT_EXEC), 0);
  }

 private:
  std::byte* memory_;
};

int forty_two() { return 42; }

template <typename Function>
Function* function_at(const std::byte* code) {
  return reinterpret_cast<Function*>(const_cast<std::byte*>(code));
}

size_t changed_bytes(CodePage& page) {
  size_t end = kRoomBytes;
  while (end > 0 && *page.at(end - 1) == std::byte{0xcc}) --end;
  return end;
}

TEST(WriteJump, AFarOneReachesAnything) {
  CodePage page;
  // Further away than a short jump goes, whichever way the kernel laid this out.
  CodePage far(page.at(0) - (uint64_t{8} << 30));
  ASSERT_GT(page.at(0) - far.at(0), int64_t{4} << 30);
  ASSERT_TRUE(write_jump(page.at(0), kRoomBytes, reinterpret_cast<const void*>(&forty_two)));
  ASSERT_TRUE(write_jump(far.at(0), kRoomBytes, page.at(0)));
  EXPECT_GE(changed_bytes(far), 14U);
  page.make_executable(4096);
  far.make_executable(4096);
  EXPECT_EQ(function_at<int()>(far.at(0))(), 42);
}

TEST(WriteJump, ANearOneIsShort) {
  CodePage page;
  ASSERT_TRUE(write_jump(page.at(1024), kRoomBytes, reinterpret_cast<const void*>(&forty_two)));
  ASSERT_TRUE(write_jump(page.at(0), 5, page.at(1024)));
  EXPECT_LE(changed_bytes(page), 5U);
  page.make_executable(4096);
  EXPECT_EQ(function_at<int()>(page.at(0))(), 42);
}

TEST(WriteJump, WithoutRoomNothingIsWritten) {
  CodePage page;
  CodePage far(page.at(0) - (uint64_t{8} << 30));
  EXPECT_FALSE(write_jump(page.at(0), 13, far.at(0)));
  EXPECT_EQ(changed_bytes(page), 0U);
  EXPECT_FALSE(write_jump(page.at(0), 3, page.at(1024)));
  EXPECT_EQ(changed_bytes(page), 0U);
}

// A thunk of one function, with its binding a page further on, as in a ThunkBlock.
class Thunk {
 public:
  explicit Thunk(const char* name) {
    resolver_ = reinterpret_cast<const void**>(page_.at(8192));
    *resolver_ = resolver_entry();
    binding_ = reinterpret_cast<Binding*>(page_.at(8192 + sizeof(void*)));
    *binding_ = {.target = nullptr, .name = name, .object = "test", .version = kNewestVersion};
    write_thunk(page_.at(0), *binding_, *resolver_);
    page_.make_executable(4096);
    set_library_folder(RGPU_TEST_DOUBLES);
  }
  template <typename Function>
  [[nodiscard]] Function* function() {
    return function_at<Function>(page_.at(0));
  }
  [[nodiscard]] const void* target() const { return binding_->target; }

 private:
  CodePage page_;
  const void** resolver_;
  Binding* binding_;
};

using Weigh = double(int, int, int, int, int, int, int, int, double, double, double, double, double,
                     double, double, double, double);

TEST(Thunk, EveryArgumentArrivesTheFirstTimeAndLater) {
  Thunk thunk("cudaWeigh");
  const auto call = [&] {
    return thunk.function<Weigh>()(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17);
  };
  const void* before = thunk.target();
  errno = 7;
  EXPECT_EQ(call(), 1785);  // The sum of the squares of 1 to 17.
  EXPECT_EQ(errno, 7);
  const void* after = thunk.target();
  EXPECT_NE(after, before);
  EXPECT_EQ(call(), 1785);
  EXPECT_EQ(thunk.target(), after);
}

TEST(Thunk, WhatOursLacksIsNamedOnce) {
  Thunk thunk("cudaNoSuchFunction");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(thunk.function<int()>()(), 801);
  EXPECT_EQ(thunk.function<int()>()(), 801);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "rgpu: cudaNoSuchFunction is not supported\n");
}

TEST(ThunkDeathTest, WithoutALibraryForItsVersionTheProgramEnds) {
  Thunk thunk("cudaWeigh");
  set_library_folder("/nowhere");
  EXPECT_EXIT(thunk.function<int()>()(), ::testing::ExitedWithCode(1), "rgpu: test");
}

}  // namespace
}  // namespace rgpu::loader
