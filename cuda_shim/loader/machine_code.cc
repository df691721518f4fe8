#include "cuda_shim/loader/machine_code.h"

#include <cstring>
#include <initializer_list>

namespace rgpu::loader {
namespace {

// Appends instructions at a place.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <typename Value>
  void put(Value value) {
    std::memcpy(at_, static_cast<const void*>(&value), sizeof value);
    at_ += sizeof value;
  }
  void put_bytes(std::initializer_list<uint8_t> bytes) {
    for (const uint8_t byte : bytes) put(byte);
  }
  [[nodiscard]] std::byte* at() const { return at_; }
  // From `extra` bytes further on to `target`.
  [[nodiscard]] int64_t distance(const void* target, int64_t extra = 0) const {
    return reinterpret_cast<int64_t>(target) - reinterpret_cast<int64_t>(at_) - extra;
  }

 private:
  std::byte* at_;
};

bool fits(int64_t distance, uint64_t reach) {
  return distance >= -static_cast<int64_t>(reach) && distance < static_cast<int64_t>(reach);
}

}  // namespace

void flush_instructions(std::byte* code, size_t size_bytes) {
  __builtin___clear_cache(reinterpret_cast<char*>(code),
                          reinterpret_cast<char*>(code) + size_bytes);
}

#if defined(__x86_64__)

const uint64_t kNearBytes = uint64_t{1} << 31;

namespace {
constexpr uint32_t kNearJumpBytes = 5;
constexpr uint32_t kFarJumpBytes = 14;
// An indirect jump may land here where control-flow enforcement is on.
constexpr std::initializer_list<uint8_t> kEndbr64 = {0xf3, 0x0f, 0x1e, 0xfa};
}  // namespace

bool write_jump(std::byte* code, uint32_t room_bytes, const void* target) {
  Writer writer(code);
  const int64_t distance = writer.distance(target, kNearJumpBytes);
  if (room_bytes >= kNearJumpBytes && fits(distance, kNearBytes)) {
    writer.put_bytes({0xe9});  // jmp target
    writer.put(static_cast<int32_t>(distance));
    return true;
  }
  if (room_bytes < kFarJumpBytes) return false;
  writer.put_bytes({0xff, 0x25, 0, 0, 0, 0});  // jmp *0(%rip)
  writer.put(target);
  return true;
}

void write_thunk(std::byte* code, Binding& binding, const void* const& resolver) {
  Writer writer(code);
  writer.put_bytes(kEndbr64);
  writer.put_bytes({0xff, 0x25});  // jmp *binding.target(%rip)
  writer.put(static_cast<int32_t>(writer.distance(static_cast<const void*>(&binding.target), 4)));
  binding.target = writer.at();
  writer.put_bytes(kEndbr64);
  writer.put_bytes({0x4c, 0x8d, 0x1d});  // lea binding(%rip), %r11
  writer.put(static_cast<int32_t>(writer.distance(&binding, 4)));
  writer.put_bytes({0xff, 0x25});  // jmp *resolver(%rip)
  writer.put(static_cast<int32_t>(writer.distance(static_cast<const void*>(&resolver), 4)));
}

// The argument registers are saved: integers, vectors, and al, which counts a variadic call's.
asm(R"(
  .text
  .p2align 4
  .type rgpu_loader_resolver_entry, @function
  .hidden rgpu_loader_resolver_entry
rgpu_loader_resolver_entry:
  .cfi_startproc
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $192, %rsp
  movq %rdi, (%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %rax, 48(%rsp)
  movups %xmm0, 64(%rsp)
  movups %xmm1, 80(%rsp)
  movups %xmm2, 96(%rsp)
  movups %xmm3, 112(%rsp)
  movups %xmm4, 128(%rsp)
  movups %xmm5, 144(%rsp)
  movups %xmm6, 160(%rsp)
  movups %xmm7, 176(%rsp)
  movq %r11, %rdi
  call rgpu_loader_resolve
  movq %rax, %r11
  movq (%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %rax
  movups 64(%rsp), %xmm0
  movups 80(%rsp), %xmm1
  movups 96(%rsp), %xmm2
  movups 112(%rsp), %xmm3
  movups 128(%rsp), %xmm4
  movups 144(%rsp), %xmm5
  movups 160(%rsp), %xmm6
  movups 176(%rsp), %xmm7
  leave
  .cfi_def_cfa %rsp, 8
  jmp *%r11
  .cfi_endproc
  .size rgpu_loader_resolver_entry, .-rgpu_loader_resolver_entry
)");

#elif defined(__aarch64__)

const uint64_t kNearBytes = uint64_t{1} << 27;

namespace {
constexpr uint32_t kNearJumpBytes = 4;
constexpr uint32_t kFarJumpBytes = 16;
constexpr uint32_t kBranchX16 = 0xd61f0200;

// ldr x16, target
uint32_t load_x16(const Writer& writer, const void* target) {
  const auto words = static_cast<uint32_t>(writer.distance(target) / 4);
  return 0x58000010 | (words & 0x7ffff) << 5;
}

// adr x17, target
uint32_t address_x17(const Writer& writer, const void* target) {
  const auto bytes = static_cast<uint32_t>(writer.distance(target));
  return 0x10000011 | (bytes & 3) << 29 | (bytes >> 2 & 0x7ffff) << 5;
}
}  // namespace

bool write_jump(std::byte* code, uint32_t room_bytes, const void* target) {
  Writer writer(code);
  const int64_t distance = writer.distance(target);
  if (room_bytes >= kNearJumpBytes && fits(distance, kNearBytes)) {
    writer.put(0x14000000 | (static_cast<uint32_t>(distance / 4) & 0x3ffffff));  // b target
    return true;
  }
  if (room_bytes < kFarJumpBytes) return false;
  writer.put(load_x16(writer, code + 8));
  writer.put(kBranchX16);
  writer.put(target);
  return true;
}

void write_thunk(std::byte* code, Binding& binding, const void* const& resolver) {
  Writer writer(code);
  writer.put(load_x16(writer, static_cast<const void*>(&binding.target)));
  writer.put(kBranchX16);
  binding.target = writer.at();
  writer.put(address_x17(writer, &binding));
  writer.put(load_x16(writer, static_cast<const void*>(&resolver)));
  writer.put(kBranchX16);
}

asm(R"(
  .text
  .p2align 4
  .type rgpu_loader_resolver_entry, %function
  .hidden rgpu_loader_resolver_entry
rgpu_loader_resolver_entry:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x17
  bl rgpu_loader_resolve
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_def_cfa_offset 0
  br x16
  .cfi_endproc
  .size rgpu_loader_resolver_entry, .-rgpu_loader_resolver_entry
)");

#else
#error "the loader knows x86-64 and AArch64"
#endif

extern "C" void rgpu_loader_resolver_entry();

const void* resolver_entry() { return reinterpret_cast<const void*>(&rgpu_loader_resolver_entry); }

}  // namespace rgpu::loader
