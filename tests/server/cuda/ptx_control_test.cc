// What lanes, warps and blocks do together; branches, calls and special registers.
#include <bit>
#include <numeric>

#include "tests/server/cuda/ptx_apply.h"

namespace rgpu::server::ptx {
namespace {

class PtxControl : public PtxInstructionTest {
 protected:
  static std::vector<uint32_t> lanes() {
    std::vector<uint32_t> v(32);
    std::iota(v.begin(), v.end(), 0);
    return v;
  }
  template <typename F>
  void expect_lanes(const std::string& body, F&& f) {
    expect_each<uint32_t>(body, lanes(), f);
  }
  // A kernel with out[thread] = %d, for larger shapes.
  std::vector<uint32_t> threads(const std::string& body, PtxTest::Shape shape,
                                const std::string& before = "") {
    const auto module = load(
        before +
        ".visible .entry k(.param .u64 p) {\n.reg .b64 %rd<9>;\n.reg .b32 %d, %t, %b, %x<9>;\n.reg "
        ".pred %p<9>;\n"
        "mov.u32 %t, %tid.x;\nmov.u32 %b, %ctaid.x;\nmov.u32 %d, 0;\nld.param.u64 %rd0, [p];\n" +
        body +
        "\nmov.u32 %x8, %ntid.x;\nmad.lo.u32 %x8, %x8, %b, %t;\nmul.wide.u32 %rd1, %x8, "
        "4;\nadd.u64 %rd2, %rd0, %rd1;\n"
        "st.global.u32 [%rd2], %d;\nret;\n}\n");
    const DeviceArray<uint32_t> out(memory_, size_t{shape.grid[0]} * shape.block[0]);
    if (module == nullptr) return {};
    const Fault fault = launch(module, "k", shape, out.address());
    EXPECT_EQ(fault.code, 0) << fault.message;
    last_ = fault;
    return std::vector<uint32_t>(out.data(), out.data() + out.size());
  }
  Fault last_;
};

TEST_F(PtxControl, Shuffles) {
  expect_lanes("shfl.sync.idx.b32 %d, %a, 5, 31, -1;", [](uint32_t) { return 5U; });
  expect_lanes("shfl.sync.bfly.b32 %d, %a, 3, 31, -1;", [](uint32_t i) { return i ^ 3; });
  expect_lanes("shfl.sync.up.b32 %d|%p1, %a, 2, 0, -1;\n@!%p1 mov.b32 %d, 99;",
               [](uint32_t i) { return i < 2 ? 99 : i - 2; });
  expect_lanes("shfl.sync.down.b32 %d|%p1, %a, 2, 31, -1;\n@!%p1 add.u32 %d, %d, 100;",
               [](uint32_t i) { return i > 29 ? i + 100 : i + 2; });
  // In segments of 8: 0x1800 | clamp.
  expect_lanes("shfl.sync.down.b32 %d, %a, 3, 0x181f, -1;",
               [](uint32_t i) { return i % 8 < 5 ? i + 3 : i; });
  expect_lanes("shfl.sync.up.b32 %d, %a, 3, 0x1800, -1;",
               [](uint32_t i) { return i % 8 >= 3 ? i - 3 : i; });
  expect_lanes("shfl.sync.idx.b32 %d, %a, 10, 0x181f, -1;",
               [](uint32_t i) { return (i & 24) | 2; });
}

TEST_F(PtxControl, Votes) {
  const std::string even = "and.b32 %x1, %a, 1;\nsetp.eq.u32 %p1, %x1, 0;\n";
  expect_lanes(even + "vote.sync.ballot.b32 %d, %p1, -1;", [](uint32_t) { return 0x55555555U; });
  expect_lanes(even + "vote.sync.any.pred %p2, !%p1, -1;\nselp.u32 %d, 1, 0, %p2;",
               [](uint32_t) { return 1U; });
  expect_lanes(even + "vote.sync.all.pred %p2, %p1, -1;\nselp.u32 %d, 1, 0, %p2;",
               [](uint32_t) { return 0U; });
  expect_lanes(
      even + "setp.lt.u32 %p3, %a, 64;\nvote.sync.uni.pred %p2, %p3, -1;\nselp.u32 %d, 1, 0, %p2;",
      [](uint32_t) { return 1U; });
  // Each half by itself, in one instruction.
  expect_lanes(even +
                   "setp.lt.u32 %p3, %a, 16;\nselp.b32 %x2, 0xffff, 0xffff0000, "
                   "%p3;\nvote.sync.ballot.b32 %d, %p1, %x2;",
               [](uint32_t i) { return i < 16 ? 0x5555U : 0x55550000U; });
}

TEST_F(PtxControl, MatchesAndReductions) {
  expect_lanes("rem.u32 %x1, %a, 3;\nmatch.any.sync.b32 %d, %x1, -1;", [](uint32_t i) {
    uint32_t mask = 0;
    for (uint32_t k = i % 3; k < 32; k += 3) mask |= 1U << k;
    return mask;
  });
  expect_lanes("mov.u32 %x1, 7;\nmatch.all.sync.b32 %d|%p1, %x1, -1;\n@!%p1 mov.u32 %d, 1;",
               [](uint32_t) { return ~0U; });
  expect_lanes("cvt.u64.u32 %w1, %a;\nmatch.all.sync.b64 %d|%p1, %w1, -1;\n@%p1 mov.u32 %d, 1;",
               [](uint32_t) { return 0U; });
  expect_lanes("redux.sync.add.u32 %d, %a, -1;", [](uint32_t) { return 496U; });
  expect_lanes("sub.s32 %x1, %a, 9;\nredux.sync.min.s32 %d, %x1, -1;",
               [](uint32_t) { return static_cast<uint32_t>(-9); });
  expect_lanes("redux.sync.xor.b32 %d, %a, -1;", [](uint32_t) { return 0U; });
  expect_lanes("elect.sync %d|%p1, -1;\n@%p1 mov.u32 %d, 50;",
               [](uint32_t i) { return i == 0 ? 50U : 0U; });
}

TEST_F(PtxControl, GuardsAndDivergence) {
  expect_lanes(
      "mov.u32 %d, 0;\nsetp.gt.u32 %p1, %a, 9;\n@%p1 bra BIG;\nactivemask.b32 %d;\nbra.uni "
      "END;\nBIG: add.u32 %d, %a, 1;\nEND:",
      [](uint32_t i) { return i > 9 ? i + 1 : 0x3ffU; });
  // A loop that each lane leaves at its own time; all are together again behind it.
  expect_lanes(
      "mov.u32 %x1, 0;\nLOOP: setp.ge.u32 %p1, %x1, %a;\n@%p1 bra OUT;\nadd.u32 %x1, %x1, 1;\nbra "
      "LOOP;\nOUT: activemask.b32 %x2;\nselp.u32 %d, %x1, %x2, %p1;",
      [](uint32_t i) { return i; });
  expect_lanes(
      "mov.u32 %x1, 0;\nLOOP: setp.ge.u32 %p1, %x1, %a;\n@%p1 bra OUT;\nadd.u32 %x1, %x1, 1;\nbra "
      "LOOP;\nOUT: activemask.b32 %d;",
      [](uint32_t) { return ~0U; });
}

TEST_F(PtxControl, LanesThatPartMeetAtTheBarrierOfTheWarp) {
  // Two paths, a bar.warp.sync in each: they meet though they stand at different places.
  expect_lanes(
      "mov.u32 %d, 1;\nsetp.lt.u32 %p1, %a, 16;\n@%p1 bra A;\nbar.warp.sync -1;\nmov.u32 %d, "
      "2;\nbra B;\nA: bar.warp.sync -1;\nB:",
      [](uint32_t i) { return i < 16 ? 1U : 2U; });
  // Lanes that have exited are not waited for.
  const auto module = load(
      ".visible .entry k(.param .u64 p) {\n.reg .b32 %t, %d;\n.reg .b64 %a;\n.reg .pred "
      "%p;\nmov.u32 %t, %tid.x;\nsetp.gt.u32 %p, %t, 3;\n@%p exit;\n"
      "redux.sync.add.u32 %d, %t, -1;\nld.param.u64 %a, [p];\nst.global.u32 [%a], %d;\nret;\n}\n");
  const DeviceArray<uint32_t> out(memory_, 1);
  EXPECT_EQ(launch(module, "k", {.block = {32, 1, 1}}, out.address()).code, 0);
  EXPECT_EQ(out[0], 6U);
}

TEST_F(PtxControl, BarrierWordsCountArrivals) {
  // Three are awaited; lanes 0 to 2 arrive, the state of lane 0 is then complete.
  const std::string body = R"(
    mov.u64 %rd3, 0;
    setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [w], 3;
    bar.warp.sync -1;
    setp.lt.u32 %p2, %t, 3;
    @!%p2 bra WAIT;
    mbarrier.arrive.shared.b64 %rd3, [w];
    mbarrier.pending_count.b64 %d, %rd3;
    WAIT: bar.warp.sync -1;
    mbarrier.test_wait.parity.shared.b64 %p3, [w], 0;
    @%p3 add.u32 %d, %d, 100;
    mbarrier.test_wait.parity.shared.b64 %p3, [w], 1;
    @%p3 add.u32 %d, %d, 1000;
    @%p2 mbarrier.test_wait.shared.b64 %p4, [w], %rd3;
    @%p2 selp.b32 %x1, 10, 0, %p4;
    @%p2 add.u32 %d, %d, %x1;)";
  const std::vector<uint32_t> got =
      threads(body, {.block = {32, 1, 1}}, ".shared .align 8 .b64 w;\n");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], i < 3 ? 100 + 10 + 3 - i : 100);
}

TEST_F(PtxControl, IndexedBranches) {
  expect_lanes(
      "and.b32 %x1, %a, 3;\nT: .branchtargets L0, L1, L2, L3;\nbrx.idx %x1, T;\nL0: mov.u32 %d, "
      "10;\nbra E;\nL1: mov.u32 %d, 11;\nbra E;\nL2: mov.u32 %d, 12;\nbra E;\nL3: mov.u32 %d, "
      "13;\nE:",
      [](uint32_t i) { return 10 + (i & 3); });
}

TEST_F(PtxControl, LabelsBelongToTheirBlock) {
  expect_lanes(
      "mov.u32 %d, 0;\n{\nbra L;\nadd.u32 %d, %d, 100;\nL: add.u32 %d, %d, 1;\n}\n{\n.reg .u32 "
      "%d2;\nbra L;\nadd.u32 %d, %d, 100;\nL: add.u32 %d, %d, 2;\n}",
      [](uint32_t) { return 3U; });
}

TEST_F(PtxControl, Barriers) {
  // Each thread reads what another warp wrote.
  std::vector<uint32_t> got = threads(R"(
    mov.u32 %x1, s;
    shl.b32 %x2, %t, 2;
    add.u32 %x3, %x1, %x2;
    st.shared.u32 [%x3], %t;
    bar.sync 0;
    sub.u32 %x4, 508, %x2;
    add.u32 %x4, %x1, %x4;
    ld.shared.u32 %d, [%x4];)",
                                      {.block = {128, 1, 1}}, ".shared .b32 s[128];\n");
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(got[i], 127 - i);
  got = threads("rem.u32 %x1, %t, 3;\nsetp.eq.u32 %p1, %x1, 0;\nbar.red.popc.u32 %d, 1, %p1;",
                {.block = {100, 1, 1}});
  for (const uint32_t d : got) EXPECT_EQ(d, 34U);
  got = threads(
      "setp.lt.u32 %p1, %t, 99;\nbarrier.cta.red.and.aligned.pred %p2, 3, %p1;\nbar.red.or.pred "
      "%p3, 4, !%p1;\nselp.u32 %x1, 1, 0, %p2;\nselp.u32 %d, 2, %x1, %p3;",
      {.block = {100, 1, 1}});
  for (const uint32_t d : got) EXPECT_EQ(d, 2U);
  // One warp produces, one waits for it; the third does not take part.
  got = threads(R"(
    setp.ge.u32 %p1, %t, 64;
    @%p1 bra END;
    setp.ge.u32 %p2, %t, 32;
    @%p2 bra CONSUME;
    add.u32 %x1, %t, 500;
    shl.b32 %x2, %t, 2;
    mov.u32 %x3, s;
    add.u32 %x3, %x3, %x2;
    st.shared.u32 [%x3], %x1;
    bar.arrive 2, 64;
    bra END;
    CONSUME: bar.sync 2, 64;
    sub.u32 %x1, %t, 32;
    shl.b32 %x2, %x1, 2;
    mov.u32 %x3, s;
    add.u32 %x3, %x3, %x2;
    ld.shared.u32 %d, [%x3];
    END:)",
                {.block = {96, 1, 1}}, ".shared .b32 s[32];\n");
  for (uint32_t i = 32; i < 64; ++i) EXPECT_EQ(got[i], 500 + i - 32);
  // Threads that are gone are not waited for.
  threads("setp.lt.u32 %p1, %t, 40;\n@%p1 exit;\nbar.sync 0;", {.block = {128, 1, 1}});
}

TEST_F(PtxControl, ThreadsThatWaitForEverAreAFault) {
  const auto module = load(
      ".visible .entry k() {\n.reg .b32 %t;\n.reg .pred %p;\nmov.u32 %t, %tid.x;\nsetp.lt.u32 %p, "
      "%t, 32;\n@%p bra A;\nbar.sync 1;\nret;\nA: bar.sync 2;\nret;\n}\n");
  const Fault fault = launch(module, "k", {.block = {64, 1, 1}});
  EXPECT_EQ(fault.code, FaultCode::kLaunchTimeout);
  EXPECT_NE(fault.message.find("wait for each other"), std::string::npos);
}

TEST_F(PtxControl, EndlessKernelsAreCancelled) {
  const auto module = load(".visible .entry k() {\nL: bra L;\n}\n");
  std::atomic<bool> cancelled = false;
  environment_.cancelled = &cancelled;
  std::thread canceller([&cancelled] { cancelled = true; });
  EXPECT_EQ(launch(module, "k", {.grid = {9, 1, 1}, .block = {64, 1, 1}}).code,
            FaultCode::kLaunchTimeout);
  canceller.join();
  environment_.cancelled = nullptr;
}

TEST_F(PtxControl, CallsWithParametersInEachForm) {
  const std::string functions = R"(
    .func (.reg .u32 r) plus(.reg .u32 a, .reg .u32 b) { add.u32 r, a, b; ret; }
    .func (.param .b32 r) pick(.param .align 8 .b8 s[16], .param .b32 i) {
      .reg .b32 %x<4>; .reg .b64 %rd<3>; .reg .pred %p;
      ld.param.u32 %x1, [i];
      setp.eq.u32 %p, %x1, 0;
      ld.param.u32 %x2, [s+12];
      @%p bra ZERO;
      st.param.b32 [r+0], %x2;
      ret;
      ZERO: mov.b64 %rd1, s;
      ld.param.u32 %x3, [%rd1+4];
      st.param.b32 [r+0], %x3;
      ret;
    })";
  const std::vector<uint32_t> got = threads(R"(
    call (%x1), plus, (%t, 1000);
    and.b32 %x2, %t, 1;
    {
      .param .align 8 .b8 q0[16];
      .param .b32 q1;
      .param .b32 result;
      st.param.v2.b32 [q0], {7, 8};
      st.param.b32 [q0+12], %x1;
      st.param.b32 [q1], %x2;
      call.uni (result), pick, (q0, q1);
      ld.param.b32 %d, [result];
    })",
                                            {.block = {64, 1, 1}}, functions);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], i % 2 == 0 ? 8 : 1000 + i);
}

TEST_F(PtxControl, IndirectCallsGoWhereEachLaneWants) {
  const std::string functions =
      ".func (.param .b32 r) one(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, "
      "%x, 1; st.param.b32 [r], %x; ret; }\n"
      ".func (.param .b32 r) two(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; mul.lo.u32 "
      "%x, %x, 2; st.param.b32 [r], %x; ret; }\n"
      ".global .u64 table[2] = {one, two};\n";
  const std::string body = R"(
    and.b32 %x1, %t, 1;
    mul.wide.u32 %rd3, %x1, 8;
    mov.u64 %rd4, table;
    add.u64 %rd4, %rd4, %rd3;
    ld.global.u64 %rd5, [%rd4];
    {
      .param .b32 a0;
      .param .b32 r0;
      st.param.b32 [a0], %t;
      P: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (r0), %rd5, (a0), P;
      ld.param.b32 %d, [r0];
    })";
  const std::vector<uint32_t> got = threads(body, {.block = {32, 1, 1}}, functions);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], i % 2 == 0 ? i + 1 : 2 * i);
  const auto module = load(functions +
                           ".visible .entry k() {\n.reg .b64 %r;\nmov.u64 %r, 4096;\nP: "
                           ".callprototype _ ();\ncall %r, (), P;\nret;\n}\n");
  EXPECT_EQ(launch(module, "k", {}).code, FaultCode::kInvalidPc);
}

TEST_F(PtxControl, RunawayRecursionIsAFault) {
  const auto module =
      load(".func f() { .local .b32 l[64]; call f; ret; }\n.visible .entry k() { call f; ret; }\n");
  EXPECT_EQ(launch(module, "k", {}).code, FaultCode::kIllegalAddress);
}

TEST_F(PtxControl, SpecialRegisters) {
  std::vector<uint32_t> got = threads(
      "mov.u32 %x1, %nctaid.x;\nmov.u32 %x2, %laneid;\nmov.u32 %x3, %warpid;\nmad.lo.u32 %d, %x1, "
      "100, %x2;\nmad.lo.u32 %d, %x3, 10000, %d;",
      {.grid = {3, 1, 1}, .block = {70, 1, 1}});
  for (uint32_t i = 0; i < 70; ++i) EXPECT_EQ(got[70 + i], 300 + i % 32 + i / 32 * 10000);
  expect_lanes("mov.u32 %d, %lanemask_lt;", [](uint32_t i) { return (1U << i) - 1; });
  expect_lanes("mov.u32 %d, %lanemask_ge;", [](uint32_t i) { return ~((1U << i) - 1); });
  expect_lanes("add.u32 %d, %tid.x, WARP_SZ;", [](uint32_t i) { return i + 32; });
  // Clocks run forward.
  expect_lanes(
      "mov.u64 %w1, %clock64;\nmov.u64 %w2, %clock64;\nsetp.ge.u64 %p1, %w2, %w1;\nmov.u64 %w3, "
      "%globaltimer;\nsetp.gt.and.u64 %p1, %w3, 1000000000, %p1;\nselp.u32 %d, 1, 0, %p1;",
      [](uint32_t) { return 1U; });
}

}  // namespace
}  // namespace rgpu::server::ptx
