// allocate_rows(): liveness over the control flow, then a linear scan over live intervals.
//
// A lane follows one path of the control flow and sees its own element of a row only, so that what
// holds for one thread's registers holds for rows.
#include <algorithm>

#include "server/cuda/emulated/ptx_lowering.h"

namespace rgpu::server::ptx {
namespace {

constexpr uint64_t kBitsMax = uint64_t{1} << 31;  // Of the live sets of all blocks, together.
constexpr uint32_t kClassCount = 5;

uint32_t class_of(uint32_t size_bytes) {
  switch (size_bytes) {
    case 0:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    case 8:
      return 3;
    default:
      return 4;
  }
}

uint32_t row_bytes(uint32_t size_bytes) { return size_bytes == 0 ? 4 : size_bytes * kLanes; }

class BitSet {
 public:
  explicit BitSet(size_t bits) : words_((bits + 63) / 64) {}
  [[nodiscard]] bool has(size_t i) const { return ((words_[i / 64] >> (i % 64)) & 1) != 0; }
  void add(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void remove(size_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  bool unite(const BitSet& other) {
    uint64_t changed = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      changed |= other.words_[i] & ~words_[i];
      words_[i] |= other.words_[i];
    }
    return changed != 0;
  }
  template <typename F>
  void each(F&& f) const {
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t left = words_[w]; left != 0; left &= left - 1) {
        f(w * 64 + static_cast<size_t>(__builtin_ctzll(left)));
      }
    }
  }

 private:
  std::vector<uint64_t> words_;
};

bool is_register(Operand operand) { return operand < kNoOperand; }

template <typename F>
void each_result(const Function& function, const Instruction& in, F&& f) {
  if (is_register(in.d)) f(in.d);
  if (is_register(in.p)) f(in.p);
  for (uint32_t i = 0; i < in.extra_results; ++i) f(function.extra_operands[in.extra + i]);
}

template <typename F>
void each_source(const Function& function, const Instruction& in, F&& f) {
  for (const Operand operand : {in.guard, in.a, in.b, in.c, in.e}) {
    if (is_register(operand)) f(operand);
  }
  for (uint32_t i = 0; i < in.extra_sources; ++i) {
    const Operand operand = function.extra_operands[in.extra + in.extra_results + i];
    if (is_register(operand)) f(operand);
  }
  // Lanes that a predicate leaves out keep what was there.
  if (in.guard != kNoOperand) each_result(function, in, f);
}

struct BasicBlock {
  uint32_t begin = 0;
  uint32_t end = 0;
  std::vector<uint32_t> next;
};

class RowAllocator {
 public:
  RowAllocator(Function& function, const std::vector<VirtualRegister>& registers)
      : function_(function),
        registers_(registers),
        first_(registers.size(), UINT32_MAX),
        last_(registers.size(), 0),
        rows_(registers.size(), 0) {}

  void run() {
    split();
    if (uint64_t{blocks_.size()} * registers_.size() * 2 <= kBitsMax) {
      intervals();
      assign();
    } else {
      for (size_t i = 0; i < registers_.size(); ++i) rows_[i] = take(registers_[i].size_bytes);
      function_.register_count = 255;
    }
    rewrite();
  }

 private:
  void split() {
    const std::vector<Instruction>& code = function_.code;
    std::vector<bool> leader(code.size() + 1, false);
    leader[0] = true;
    for (size_t i = 0; i < code.size(); ++i) {
      const Kind kind = code[i].kind;
      if (kind == Kind::kBranch) leader[code[i].target] = true;
      if (kind == Kind::kBranchIndex) {
        for (const uint32_t target : function_.branch_tables[code[i].target]) leader[target] = true;
      }
      if (kind == Kind::kBranch || kind == Kind::kBranchIndex || kind == Kind::kExit ||
          kind == Kind::kReturn) {
        leader[i + 1] = true;
      }
    }
    std::vector<uint32_t> block_at(code.size() + 1, 0);
    for (uint32_t i = 0; i < code.size(); ++i) {
      if (leader[i]) blocks_.push_back({i, i, {}});
      block_at[i] = static_cast<uint32_t>(blocks_.size()) - 1;
      blocks_.back().end = i + 1;
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const Instruction& last = code[blocks_[b].end - 1];
      std::vector<uint32_t>& next = blocks_[b].next;
      if (last.kind == Kind::kBranch) next.push_back(block_at[last.target]);
      if (last.kind == Kind::kBranchIndex) {
        for (const uint32_t target : function_.branch_tables[last.target])
          next.push_back(block_at[target]);
      }
      const bool falls =
          (last.kind != Kind::kBranch && last.kind != Kind::kExit && last.kind != Kind::kReturn) ||
          last.guard != kNoOperand;
      if (falls && b + 1 < blocks_.size()) next.push_back(static_cast<uint32_t>(b) + 1);
    }
  }

  void intervals() {
    const size_t count = registers_.size();
    std::vector<BitSet> live_in(blocks_.size(), BitSet(count));
    std::vector<BitSet> killed(blocks_.size(), BitSet(count));
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
        const Instruction& in = function_.code[i];
        each_source(function_, in, [&](Operand r) {
          if (!killed[b].has(r)) live_in[b].add(r);
        });
        each_result(function_, in, [&](Operand r) { killed[b].add(r); });
      }
    }
    // What is live behind a block and not made in it is live before it.
    BitSet out(count);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = blocks_.size(); b-- > 0;) {
        out = BitSet(count);
        for (const uint32_t next : blocks_[b].next) out.unite(live_in[next]);
        BitSet through(count);
        out.each([&](size_t r) {
          if (!killed[b].has(r)) through.add(r);
        });
        changed = live_in[b].unite(through) || changed;
      }
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const BasicBlock& block = blocks_[b];
      live_in[b].each([&](size_t r) { extend(static_cast<Operand>(r), block.begin); });
      for (const uint32_t next : block.next) {
        live_in[next].each([&](size_t r) {
          extend(static_cast<Operand>(r), block.end - 1);
          // Through the whole block, if it comes in as well.
        });
      }
      for (uint32_t i = block.begin; i < block.end; ++i) {
        each_source(function_, function_.code[i], [&](Operand r) { extend(r, i); });
        each_result(function_, function_.code[i], [&](Operand r) { extend(r, i); });
      }
    }
  }

  void extend(Operand r, uint32_t position) {
    first_[r] = std::min(first_[r], position);
    last_[r] = std::max(last_[r], position);
  }

  uint32_t take(uint32_t size_bytes) {
    std::vector<uint32_t>& free = free_[class_of(size_bytes)];
    if (!free.empty()) {
      const uint32_t row = free.back();
      free.pop_back();
      return row;
    }
    const uint32_t bytes = row_bytes(size_bytes);
    const uint32_t alignment = std::min(bytes, 64U);
    function_.frame_size_bytes =
        (function_.frame_size_bytes + alignment - 1) / alignment * alignment;
    const uint32_t row = function_.frame_size_bytes;
    function_.frame_size_bytes += bytes;
    return row;
  }

  // A row is free again behind the last instruction that names it, so that no instruction writes
  // where it reads unless the program says so.
  void assign() {
    std::vector<Operand> by_begin;
    for (Operand r = 0; r < registers_.size(); ++r) {
      if (first_[r] != UINT32_MAX) by_begin.push_back(r);
    }
    std::sort(by_begin.begin(), by_begin.end(),
              [this](Operand a, Operand b) { return first_[a] < first_[b]; });
    std::vector<std::pair<uint32_t, Operand>> live;  // A heap by the last position.
    const auto later = std::greater<>();
    uint32_t words = 0;
    uint32_t words_max = 0;
    const auto words_of = [this](Operand r) { return (registers_[r].size_bytes + 3) / 4; };
    for (const Operand r : by_begin) {
      while (!live.empty() && live.front().first < first_[r]) {
        std::pop_heap(live.begin(), live.end(), later);
        const Operand gone = live.back().second;
        live.pop_back();
        free_[class_of(registers_[gone].size_bytes)].push_back(rows_[gone]);
        words -= words_of(gone);
      }
      rows_[r] = take(registers_[r].size_bytes);
      words += words_of(r);
      words_max = std::max(words_max, words);
      live.emplace_back(last_[r], r);
      std::push_heap(live.begin(), live.end(), later);
    }
    // As the vendor's assembler rounds: to 8, and a few for itself.
    function_.register_count = std::clamp((words_max + 4 + 7) / 8 * 8, 16U, 255U);
  }

  void rewrite() {
    const auto row = [this](Operand& operand) {
      if (is_register(operand)) operand = rows_[operand];
    };
    for (Instruction& in : function_.code) {
      for (Operand* operand : {&in.guard, &in.d, &in.p, &in.a, &in.b, &in.c, &in.e}) row(*operand);
    }
    for (Operand& operand : function_.extra_operands) row(operand);
    for (std::vector<Place>* places : {&function_.formals, &function_.formal_results}) {
      for (Place& place : *places) {
        if (place.in_register) row(place.offset);
      }
    }
    function_.frame_size_bytes = (function_.frame_size_bytes + 63) / 64 * 64;
  }

  Function& function_;
  const std::vector<VirtualRegister>& registers_;
  std::vector<BasicBlock> blocks_;
  std::vector<uint32_t> first_;
  std::vector<uint32_t> last_;
  std::vector<uint32_t> rows_;
  std::vector<uint32_t> free_[kClassCount];
};

}  // namespace

void allocate_rows(Function& function, const std::vector<VirtualRegister>& registers) {
  RowAllocator(function, registers).run();
}

}  // namespace rgpu::server::ptx
