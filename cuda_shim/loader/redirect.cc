#include "cuda_shim/loader/redirect.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cuda_shim/loader/machine_code.h"
#include "cuda_shim/loader/resolver.h"
#include "cuda_shim/loader/static_runtime.h"

namespace rgpu::loader {
namespace {

uint64_t page_bytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

struct Range {
  uint64_t begin;
  uint64_t end;
};

// The whole pages of a program header's memory.
Range pages_of(const Elf64_Phdr& segment, uint64_t bias) {
  const uint64_t begin = bias + segment.p_vaddr;
  return {begin / page_bytes() * page_bytes(), round_up(begin + segment.p_memsz, page_bytes())};
}

Range extent(const ElfFile& file, uint64_t bias) {
  Range whole{UINT64_MAX, 0};
  file.each_segment([&](const Elf64_Phdr& segment) {
    if (segment.p_type != PT_LOAD) return;
    const Range pages = pages_of(segment, bias);
    whole = {std::min(whole.begin, pages.begin), std::max(whole.end, pages.end)};
  });
  return whole;
}

// Memory that the shortest jump reaches from all of `object`; anywhere if there is none so near.
std::byte* map_near(Range object, uint64_t size_bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  const uint64_t step = uint64_t{1} << 20;
  const auto try_at = [&](uint64_t place) -> std::byte* {
    void* wanted = memory_at(place);
    void* mapped =
        ::mmap(wanted, size_bytes, PROT_READ | PROT_WRITE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped == wanted) return static_cast<std::byte*>(mapped);
    if (mapped != MAP_FAILED) ::munmap(mapped, size_bytes);  // A kernel that takes it as a hint.
    return nullptr;
  };
  // Below first: behind a program its heap grows.
  for (uint64_t back = round_up(size_bytes, step);
       back < object.begin && object.end - object.begin + back < kNearBytes; back += step) {
    if (std::byte* found = try_at(object.begin - back)) return found;
  }
  for (uint64_t on = 64 * step; object.end - object.begin + on + size_bytes < kNearBytes;
       on += step) {
    if (std::byte* found = try_at(object.end + on)) return found;
  }
  void* anywhere = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return anywhere == MAP_FAILED ? nullptr : static_cast<std::byte*>(anywhere);
}

// The thunks of one object and what they need: code first, then bindings and names.
class ThunkBlock {
 public:
  ThunkBlock(const LoadedObject& object, std::span<const Entry> entries, Range near) {
    code_bytes_ = round_up(entries.size() * kThunkSizeBytes, page_bytes());
    const uint64_t bindings_bytes = sizeof(void*) + entries.size() * sizeof(Binding);
    uint64_t names_bytes = std::strlen(object.name) + 1;
    for (const Entry& entry : entries) names_bytes += std::strlen(entry.name) + 1;
    const uint64_t size_bytes = code_bytes_ + round_up(bindings_bytes + names_bytes, page_bytes());
    code_ = map_near(near, size_bytes);
    if (code_ == nullptr) return;
    resolver_ = reinterpret_cast<const void**>(code_ + code_bytes_);
    *resolver_ = resolver_entry();
    bindings_ = reinterpret_cast<Binding*>(code_ + code_bytes_ + sizeof(void*));
    next_name_ = reinterpret_cast<char*>(code_ + code_bytes_ + bindings_bytes);
    object_ = keep(object.name);
  }

  [[nodiscard]] bool is_mapped() const { return code_ != nullptr; }
  // The next thunk.
  const std::byte* add(const char* name, int version) {
    std::byte* thunk = code_ + count_ * kThunkSizeBytes;
    Binding& binding = bindings_[count_++];
    binding = {.target = nullptr, .name = keep(name), .object = object_, .version = version};
    write_thunk(thunk, binding, *resolver_);
    return thunk;
  }
  [[nodiscard]] bool seal() {
    flush_instructions(code_, code_bytes_);
    return ::mprotect(code_, code_bytes_, PROT_READ | PROT_EXEC) == 0;
  }

 private:
  const char* keep(const char* text) {
    const size_t size_bytes = std::strlen(text) + 1;
    char* kept = next_name_;
    std::memcpy(kept, text, size_bytes);
    next_name_ += size_bytes;
    return kept;
  }

  std::byte* code_ = nullptr;
  uint64_t code_bytes_ = 0;
  const void** resolver_ = nullptr;
  Binding* bindings_ = nullptr;
  char* next_name_ = nullptr;
  const char* object_ = nullptr;
  uint64_t count_ = 0;
};

// Writes the jumps of the entries that lie in one executable segment. The pages are never
// writable and executable at once.
bool patch_segment(const LoadedObject& object, const Elf64_Phdr& segment,
                   std::span<const Entry> entries, ThunkBlock& thunks, int version) {
  const auto is_inside = [&](const Entry& entry) {
    return entry.address >= segment.p_vaddr &&
           entry.address + entry.room_bytes <= segment.p_vaddr + segment.p_memsz;
  };
  if (std::none_of(entries.begin(), entries.end(), is_inside)) return true;
  const Range pages = pages_of(segment, object.bias);
  std::byte* begin = memory_at(pages.begin);
  const size_t size_bytes = pages.end - pages.begin;
  if (::mprotect(begin, size_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  const char* unreached = nullptr;
  for (const Entry& entry : entries) {
    if (!is_inside(entry)) continue;
    std::byte* code = memory_at(object.bias + entry.address);
    if (!write_jump(code, entry.room_bytes, thunks.add(entry.name, version))) {
      unreached = entry.name;
    }
  }
  flush_instructions(begin, size_bytes);
  const int protection = PROT_EXEC | ((segment.p_flags & PF_R) != 0 ? PROT_READ : 0) |
                         ((segment.p_flags & PF_W) != 0 ? PROT_WRITE : 0);
  if (unreached != nullptr) say({"rgpu: ", object.name, ": no room to redirect ", unreached});
  // As the linker had it, be it writable. NOLINTNEXTLINE(clang-analyzer-security.MmapWriteExec)
  return ::mprotect(begin, size_bytes, protection) == 0;
}

}  // namespace

void redirect(const LoadedObject& object, const ElfFile& file, const char* libraries) {
  const int version = StaticRuntime::version(file);
  if (version == 0) return;
  const MappedFile library(LibraryPath(libraries, version).text());
  if (library.bytes().empty() && !object.is_program) return;
  const MappedFile newest(LibraryPath(libraries, kNewestVersion).text());
  const StaticRuntime runtime(file,
                              ElfFile(library.bytes().empty() ? newest.bytes() : library.bytes()));
  const std::span<const Entry> entries = runtime.entries();
  if (entries.empty()) return;
  ThunkBlock thunks(object, entries, extent(file, object.bias));
  bool done = thunks.is_mapped();
  file.each_segment([&](const Elf64_Phdr& segment) {
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) return;
    done = done && patch_segment(object, segment, entries, thunks, version);
  });
  if (!done || !thunks.seal()) {
    say({"rgpu: ", object.name,
         ": its static CUDA Runtime cannot be redirected: ", std::strerror(errno)});
  }
}

}  // namespace rgpu::loader
